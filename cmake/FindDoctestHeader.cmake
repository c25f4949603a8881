# SPDX-License-Identifier: Apache-2.0
# Finds, or fetches, the single header of doctest. Set DOCTEST_ROOT, as a CMake or environment
# variable, to use a copy of your own.
#
#   doctest::header            imported target; include as <doctest/doctest.h>
#   DoctestHeader_FOUND
#   DoctestHeader_INCLUDE_DIR

include("${CMAKE_CURRENT_LIST_DIR}/MyopsFetchHeaders.cmake")
include(FindPackageHandleStandardArgs)

myops_fetch_headers(
  FIND_NAME DoctestHeader
  PACKAGE doctest
  HEADER doctest/doctest.h
  ROOT_VARIABLE DOCTEST_ROOT)

find_package_handle_standard_args(DoctestHeader
  REQUIRED_VARS DoctestHeader_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "${DoctestHeader_FETCH_MESSAGE}")
unset(DoctestHeader_FETCH_MESSAGE)

if(DoctestHeader_FOUND AND NOT TARGET doctest::header)
  add_library(doctest::header INTERFACE IMPORTED)
  target_include_directories(doctest::header SYSTEM INTERFACE "${DoctestHeader_INCLUDE_DIR}")
endif()
