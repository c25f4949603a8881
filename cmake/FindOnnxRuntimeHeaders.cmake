# SPDX-License-Identifier: Apache-2.0
# Finds, or fetches, the C headers of ONNX Runtime. Set ONNXRUNTIME_ROOT, as a CMake or environment
# variable, to use a copy of your own.
#
#   OnnxRuntime::headers            imported target, include folder only: nothing is linked
#   OnnxRuntimeHeaders_FOUND
#   OnnxRuntimeHeaders_INCLUDE_DIR
#   OnnxRuntimeHeaders_API_VERSION  ORT_API_VERSION of the headers

include("${CMAKE_CURRENT_LIST_DIR}/MyopsFetchHeaders.cmake")
include(FindPackageHandleStandardArgs)

myops_fetch_headers(
  FIND_NAME OnnxRuntimeHeaders
  PACKAGE onnxruntime
  HEADER onnxruntime_c_api.h
  ROOT_VARIABLE ONNXRUNTIME_ROOT
  SUFFIXES onnxruntime onnxruntime/core/session)

unset(OnnxRuntimeHeaders_API_VERSION)
if(OnnxRuntimeHeaders_INCLUDE_DIR)
  file(STRINGS "${OnnxRuntimeHeaders_INCLUDE_DIR}/onnxruntime_c_api.h" _myops_define
    REGEX "^[ \t]*#[ \t]*define[ \t]+ORT_API_VERSION[ \t]+[0-9]+")
  if(_myops_define MATCHES "ORT_API_VERSION[ \t]+([0-9]+)")
    set(OnnxRuntimeHeaders_API_VERSION "${CMAKE_MATCH_1}")
  endif()
  unset(_myops_define)
  # The script checks this itself; a folder from find_path or from the command line comes unchecked.
  if(NOT OnnxRuntimeHeaders_API_VERSION GREATER_EQUAL 21)
    message(FATAL_ERROR
      "[OnnxRuntimeHeaders] ORT_API_VERSION should be 21 or more. Received "
      "'${OnnxRuntimeHeaders_API_VERSION}' in ${OnnxRuntimeHeaders_INCLUDE_DIR}. "
      "Set ONNXRUNTIME_ROOT to the headers of ONNX Runtime 1.21 or newer.")
  endif()
endif()

find_package_handle_standard_args(OnnxRuntimeHeaders
  REQUIRED_VARS OnnxRuntimeHeaders_INCLUDE_DIR OnnxRuntimeHeaders_API_VERSION
  VERSION_VAR OnnxRuntimeHeaders_API_VERSION
  REASON_FAILURE_MESSAGE "${OnnxRuntimeHeaders_FETCH_MESSAGE}")
unset(OnnxRuntimeHeaders_FETCH_MESSAGE)

if(OnnxRuntimeHeaders_FOUND AND NOT TARGET OnnxRuntime::headers)
  add_library(OnnxRuntime::headers INTERFACE IMPORTED)
  target_include_directories(OnnxRuntime::headers SYSTEM INTERFACE
    "${OnnxRuntimeHeaders_INCLUDE_DIR}")
endif()
