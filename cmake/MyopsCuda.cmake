# SPDX-License-Identifier: Apache-2.0
# Whether and for which GPUs CUDA kernels are built: sets MYOPS_WITH_CUDA and
# CMAKE_CUDA_ARCHITECTURES.
include_guard()

# myops_torch_architectures(<output> <TORCH_CUDA_ARCH_LIST>): "8.0;8.6 8.9+PTX" as CMake spells it,
# "80-real;86-real;89-real;89-virtual".
function(myops_torch_architectures output list)
  string(REGEX REPLACE "[ ,]+" ";" entries "${list}")
  set(found "")
  foreach(entry IN LISTS entries)
    if(NOT entry MATCHES "^([0-9]+)\\.([0-9][af]?)(\\+PTX)?$")
      message(FATAL_ERROR "[myops] TORCH_CUDA_ARCH_LIST should hold entries like 8.0 or 9.0+PTX. "
                          "Received \"${entry}\". Correct it, or set CMAKE_CUDA_ARCHITECTURES.")
    endif()
    set(number "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
    list(APPEND found ${number}-real)
    if(CMAKE_MATCH_3)
      list(APPEND found ${number}-virtual)
    endif()
  endforeach()
  set(${output} "${found}" PARENT_SCOPE)
endfunction()

set(MYOPS_WITH_CUDA OFF)
if(NOT MYOPS_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      if(DEFINED ENV{CUDAARCHS})
        set(CMAKE_CUDA_ARCHITECTURES $ENV{CUDAARCHS})
      elseif(DEFINED ENV{TORCH_CUDA_ARCH_LIST})
        myops_torch_architectures(CMAKE_CUDA_ARCHITECTURES "$ENV{TORCH_CUDA_ARCH_LIST}")
      else()
        # The major ones, and PTX of the newest for GPUs to come.
        set(CMAKE_CUDA_ARCHITECTURES all-major)
      endif()
    endif()
    enable_language(CUDA)
    set(MYOPS_WITH_CUDA ON)
    message(STATUS "myops: CUDA ${CMAKE_CUDA_COMPILER_VERSION} with host compiler "
                   "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, architectures "
                   "${CMAKE_CUDA_ARCHITECTURES}")
  elseif(MYOPS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "[myops] MYOPS_CUDA=ON needs nvcc. Received none. Install the CUDA toolkit, "
                        "name nvcc in CUDACXX, or configure with -DMYOPS_CUDA=OFF.")
  else()
    message(STATUS "myops: no nvcc found, building without CUDA")
  endif()
endif()
