# SPDX-License-Identifier: Apache-2.0
# Finds torch's headers and libraries without find_package(Torch), which would bring CUDA toolkits,
# MKL and compile flags along. Looks at
#   MYOPS_TORCH_ROOT   folder with include/ and lib/ (a torch package or a libtorch archive)
#   the site-packages of the Python environment being installed into; an isolated build cannot
#   import torch from there but sees its files
# Gives TorchLibrary_FOUND, TorchLibrary_VERSION and the target Torch::library.
set(MYOPS_TORCH_ROOT "" CACHE PATH "Folder with torch's include/ and lib/")

set(candidates ${MYOPS_TORCH_ROOT} $ENV{MYOPS_TORCH_ROOT})
if(NOT candidates)
  find_package(Python COMPONENTS Interpreter QUIET)
  if(Python_Interpreter_FOUND)
    set(candidates ${Python_SITEARCH}/torch ${Python_SITELIB}/torch)
  endif()
endif()

unset(TorchLibrary_ROOT_DIR)
foreach(candidate IN LISTS candidates)
  if(EXISTS ${candidate}/include/torch/library.h)
    set(TorchLibrary_ROOT_DIR ${candidate})
    break()
  endif()
endforeach()

unset(TorchLibrary_VERSION)
foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  set(header ${TorchLibrary_ROOT_DIR}/include/${header})
  if(TorchLibrary_ROOT_DIR AND EXISTS ${header})
    file(STRINGS ${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers "." TorchLibrary_VERSION)
    if(TorchLibrary_VERSION)
      break()
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  TorchLibrary
  REQUIRED_VARS TorchLibrary_ROOT_DIR TorchLibrary_VERSION
  VERSION_VAR TorchLibrary_VERSION)

if(TorchLibrary_FOUND AND NOT TARGET Torch::library)
  add_library(Torch::library INTERFACE IMPORTED)
  set(include_dir ${TorchLibrary_ROOT_DIR}/include)
  target_include_directories(Torch::library SYSTEM
                             INTERFACE ${include_dir} ${include_dir}/torch/csrc/api/include)
  target_link_directories(Torch::library INTERFACE ${TorchLibrary_ROOT_DIR}/lib)
  target_link_libraries(Torch::library INTERFACE torch torch_cpu c10)
endif()
