# SPDX-License-Identifier: Apache-2.0
# What all targets share: warnings, sanitizers, where things are installed.
include_guard()

set(MYOPS_WARNINGS -Wall -Wextra -Wpedantic -Wno-psabi)
set(MYOPS_PACKAGE_DIR ${CMAKE_CURRENT_LIST_DIR})

# What the plugin may ask of a system: Debian 10, Ubuntu 18.10, RHEL 8.
set(MYOPS_OLD_SYSTEMS GLIBC_2.28 GLIBCXX_3.4.25 CXXABI_1.3.11)

# In a wheel the libraries lie inside the package; else in the prefix's lib folder.
if(SKBUILD)
  set(MYOPS_INSTALL_LIBDIR myops/lib)
else()
  set(MYOPS_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
endif()

# myops_target_defaults(<target>): flags every target of ours is compiled with.
function(myops_target_defaults target)
  set(options ${MYOPS_WARNINGS} -fvisibility=hidden -fvisibility-inlines-hidden)
  # __FILE__ in messages is relative to the source tree, the project's or ours: a library names no
  # path of its builder.
  get_filename_component(ours ${CMAKE_CURRENT_FUNCTION_LIST_DIR} DIRECTORY)
  set(maps -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -ffile-prefix-map=${ours}/=)
  list(REMOVE_DUPLICATES maps)
  list(TRANSFORM maps PREPEND -Xcompiler= OUTPUT_VARIABLE cuda_maps)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${options};${maps}>"
                                           "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_maps}>")
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF
                                             CUDA_VISIBILITY_PRESET hidden)
  myops_sanitize(${target})
endfunction()

if(MYOPS_SANITIZE STREQUAL "thread")
  set(MYOPS_SANITIZE_FLAGS -fsanitize=thread)
elseif(MYOPS_SANITIZE)
  set(MYOPS_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined)
else()
  set(MYOPS_SANITIZE_FLAGS "")
endif()

function(myops_sanitize target)
  if(MYOPS_SANITIZE_FLAGS)
    target_compile_options(${target} PRIVATE ${MYOPS_SANITIZE_FLAGS} -g)
    target_link_options(${target} PRIVATE ${MYOPS_SANITIZE_FLAGS})
  endif()
endfunction()

# In a wheel: what projects of their own build their operators from, see myops_add_operator_library.
function(myops_install_sources)
  include(CMakePackageConfigHelpers)
  set(share myops/share)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/native/kernels ${PROJECT_SOURCE_DIR}/native/torch
                    ${PROJECT_SOURCE_DIR}/native/ort
          DESTINATION ${share}/native
          PATTERN CMakeLists.txt EXCLUDE)
  install(FILES ${MYOPS_PACKAGE_DIR}/FindOnnxRuntimeHeaders.cmake
                ${MYOPS_PACKAGE_DIR}/FindTorchLibrary.cmake ${MYOPS_PACKAGE_DIR}/MyopsCuda.cmake
                ${MYOPS_PACKAGE_DIR}/MyopsFetchHeaders.cmake ${MYOPS_PACKAGE_DIR}/MyopsIsa.cmake
                ${MYOPS_PACKAGE_DIR}/MyopsLibraries.cmake
                ${MYOPS_PACKAGE_DIR}/MyopsOperatorLibrary.cmake
                ${MYOPS_PACKAGE_DIR}/MyopsTargets.cmake
          DESTINATION ${share}/cmake)
  install(FILES ${MYOPS_PACKAGE_DIR}/MyopsOperatorConfig.cmake DESTINATION ${share}/cmake
          RENAME myopsConfig.cmake)
  install(FILES ${PROJECT_SOURCE_DIR}/third_party/fetch_headers.py
                ${PROJECT_SOURCE_DIR}/third_party/apt_package.py DESTINATION ${share}/third_party)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/myopsConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/myopsConfigVersion.cmake DESTINATION ${share}/cmake)
endfunction()

# The C++ package: static kernels, public headers and find_package(myops).
function(myops_install_package)
  include(CMakePackageConfigHelpers)
  set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/myops)
  install(TARGETS myops_kernels EXPORT myopsTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/native/kernels/include/myops
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT myopsTargets NAMESPACE myops:: DESTINATION ${config_dir})
  configure_package_config_file(${MYOPS_PACKAGE_DIR}/myopsConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/myopsConfig.cmake
                                INSTALL_DESTINATION ${config_dir}
                                PATH_VARS CMAKE_INSTALL_LIBDIR)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/myopsConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/myopsConfig.cmake
                ${PROJECT_BINARY_DIR}/myopsConfigVersion.cmake
                ${MYOPS_PACKAGE_DIR}/FindTorchLibrary.cmake DESTINATION ${config_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()
