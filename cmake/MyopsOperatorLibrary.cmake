# SPDX-License-Identifier: Apache-2.0
# Operators in a project of its own, out of the sources that lie beside this folder.
include_guard()

set(MYOPS_BUILD_TORCH AUTO CACHE STRING "Build the torch library: AUTO, ON or OFF")
option(MYOPS_BUILD_ORT "Build the ONNX Runtime plugin" ON)
set(MYOPS_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (where nvcc is found), ON or OFF")
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
include(GNUInstallDirs)
include(${CMAKE_CURRENT_LIST_DIR}/MyopsTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/MyopsIsa.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/MyopsCuda.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/MyopsLibraries.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/MyopsFetchHeaders.cmake)  # for LINK
set(MYOPS_MODULE_DIR ${CMAKE_CURRENT_LIST_DIR})

# Domains with a meaning of their own in ONNX, ONNX Runtime or torch, and this package's.
set(MYOPS_RESERVED_NAMESPACES myops torch aten prim prims quantized inductor ai onnx onnxruntime com
                              microsoft)

# myops_add_operator_library(<namespace> [CUSTOM] HEADER <header> OPS <operator>... [LINK <target>...])
#   <namespace>  of the operators in torch, and their domain in ONNX
#   HEADER       header with the functors; native/kernels/ops/activation.hpp describes what they have
#   OPS          names of the functors in CamelCase, each with its torch name in snake_case where
#                that does not follow: Softsign, or HardSwish=hardswish
#   CUSTOM       the operators are functions over whole tensors, which myops/custom.hpp describes,
#                instead of elementwise functors; a namespace holds one of the two kinds
#   LINK         other libraries that HEADER needs
#
# Gives the targets <namespace>_torch (lib<namespace>.so, where torch is found) and <namespace>_ort
# (lib<namespace>_ort.so), and installs both to <namespace>/lib.
function(myops_add_operator_library namespace)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CUSTOM" "HEADER" "OPS;LINK")
  set(where "[myops_add_operator_library]")
  if(NOT namespace MATCHES "^[a-z][a-z0-9_]*$" OR namespace IN_LIST MYOPS_RESERVED_NAMESPACES)
    list(JOIN MYOPS_RESERVED_NAMESPACES ", " reserved)
    message(FATAL_ERROR "${where} the namespace should be in snake_case, and none of ${reserved}. "
                        "Received \"${namespace}\". Choose another one.")
  endif()
  get_filename_component(header "${arg_HEADER}" ABSOLUTE)
  if(NOT arg_HEADER OR NOT EXISTS "${header}" OR NOT arg_OPS)
    message(FATAL_ERROR "${where} HEADER should be a file with functors, and OPS name some of them. "
                        "Received \"${arg_HEADER}\" and \"${arg_OPS}\". Pass both.")
  endif()
  set(entries "")
  foreach(op IN LISTS arg_OPS)
    if(NOT op MATCHES "^([A-Z][A-Za-z0-9]*)(=([a-z][a-z0-9_]*))?$")
      message(FATAL_ERROR "${where} OPS should hold names like Softsign or HardSwish=hardswish. "
                          "Received \"${op}\". Correct it.")
    endif()
    set(name ${CMAKE_MATCH_1})
    set(torch_name ${CMAKE_MATCH_3})
    if(NOT torch_name)
      string(REGEX REPLACE "([a-z0-9])([A-Z])" "\\1_\\2" torch_name ${name})
      string(REGEX REPLACE "([A-Z])([A-Z][a-z])" "\\1_\\2" torch_name ${torch_name})
      string(TOLOWER ${torch_name} torch_name)
    endif()
    string(APPEND entries " X(${name}, ${torch_name})")
  endforeach()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/myops_${namespace})
  set(list_name ${namespace}_op_list.hpp)
  set(list MYOPS_ALL_OPS)
  set(other_list "")
  if(arg_CUSTOM)
    set(list MYOPS_CUSTOM_OPS)
    set(other_list "#define MYOPS_ALL_OPS(X)")
  endif()
  file(CONFIGURE OUTPUT ${folder}/${list_name} @ONLY CONTENT [[
// Written by myops_add_operator_library: the operators of @namespace@.
#pragma once
#include "@header@"
#define @list@(X)@entries@
@other_list@
]])

  set(kernels ${namespace}_kernels)
  if(arg_CUSTOM)
    myops_add_custom_kernel_library(${kernels} ${list_name})
    set(kind CUSTOM)
  else()
    myops_add_kernel_library(${kernels} OP_LIST ${list_name})
    set(kind WITHOUT_NORMS)
  endif()
  target_include_directories(${kernels} PUBLIC $<BUILD_INTERFACE:${folder}>)
  target_link_libraries(${kernels} PUBLIC ${arg_LINK})

  list(PREPEND CMAKE_MODULE_PATH ${MYOPS_MODULE_DIR})
  if(NOT MYOPS_BUILD_TORCH STREQUAL "OFF")
    find_package(TorchLibrary)
    if(TorchLibrary_FOUND)
      myops_add_torch_library(${namespace}_torch ${kernels} ${namespace} ${kind})
      install(TARGETS ${namespace}_torch LIBRARY DESTINATION ${namespace}/lib)
    elseif(MYOPS_BUILD_TORCH STREQUAL "ON")
      message(FATAL_ERROR "${where} MYOPS_BUILD_TORCH=ON needs torch in the Python environment or "
                          "at MYOPS_TORCH_ROOT. Received none. Install torch first.")
    else()
      message(STATUS "${namespace}: no torch found, building without the torch library")
    endif()
  endif()
  if(MYOPS_BUILD_ORT)
    find_package(OnnxRuntimeHeaders REQUIRED)
    myops_add_ort_plugin(${namespace}_ort ${kernels} ${namespace} ${kind})
    install(TARGETS ${namespace}_ort LIBRARY DESTINATION ${namespace}/lib)
  endif()
endfunction()
