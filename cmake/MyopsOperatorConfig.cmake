# SPDX-License-Identifier: Apache-2.0
# find_package(myops) in a project with operators of its own, from the installed Python package. Gives
#   myops_add_operator_library(<namespace> HEADER <header> OPS <operator>...)
# which is documented in MyopsOperatorLibrary.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/MyopsOperatorLibrary.cmake)
