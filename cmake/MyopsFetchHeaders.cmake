# SPDX-License-Identifier: Apache-2.0
# Shared by the find modules of header-only packages.

# Looks for a package's include folder with third_party/fetch_headers.py and stores it in the cache
# variable <find_name>_INCLUDE_DIR. Without a Python interpreter, find_path looks on this machine.
#
#   FIND_NAME      name of the find module, e.g. OnnxRuntimeHeaders
#   PACKAGE        name the script knows, e.g. onnxruntime
#   HEADER         header as it is included, e.g. onnxruntime_c_api.h
#   ROOT_VARIABLE  CMake or environment variable with which the user names the folder
#   SUFFIXES       folders below an include folder that may hold HEADER
#
# Sets <find_name>_FETCH_MESSAGE in the caller's scope: why nothing was found, else empty.
function(myops_fetch_headers)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "FIND_NAME;PACKAGE;HEADER;ROOT_VARIABLE" "SUFFIXES")
  set(result "${arg_FIND_NAME}_INCLUDE_DIR")
  set(used_root "${arg_FIND_NAME}_USED_ROOT")
  set(${arg_FIND_NAME}_FETCH_MESSAGE "" PARENT_SCOPE)

  set(root "${${arg_ROOT_VARIABLE}}")
  if(NOT root)
    set(root "$ENV{${arg_ROOT_VARIABLE}}")
  endif()

  # A folder found for another root is stale; a folder that lost its header must be found again.
  if(DEFINED ${used_root} AND NOT "${${used_root}}" STREQUAL "${root}")
    unset(${result} CACHE)
  endif()
  if(${result} AND EXISTS "${${result}}/${arg_HEADER}")
    return()
  endif()
  unset(${result} CACHE)
  set(${used_root} "${root}" CACHE INTERNAL "The root that ${result} was found with")

  # The interpreter the project builds for comes first, where the project already chose one.
  unset(myops_python)
  if(Python_EXECUTABLE)
    set(myops_python "${Python_EXECUTABLE}")
  endif()
  find_program(myops_python NAMES python3 python NO_CACHE)

  unset(myops_folder)
  set(message "")
  if(myops_python)
    set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../third_party/fetch_headers.py")
    set(prefixes "${CMAKE_PREFIX_PATH}")
    cmake_path(CONVERT "$ENV{CMAKE_PREFIX_PATH}" TO_CMAKE_PATH_LIST environment_prefixes)
    list(APPEND prefixes ${environment_prefixes})
    cmake_path(CONVERT "${prefixes}" TO_NATIVE_PATH_LIST prefixes)
    set(command "${myops_python}" -B "${script}" "${arg_PACKAGE}")
    if(root)
      list(APPEND command --root "${root}")
    endif()
    if(MYOPS_HEADER_CACHE)
      list(APPEND command --cache "${MYOPS_HEADER_CACHE}")
    endif()
    execute_process(
      COMMAND "${CMAKE_COMMAND}" -E env "CMAKE_PREFIX_PATH=${prefixes}" ${command}
      RESULT_VARIABLE code
      OUTPUT_VARIABLE myops_folder
      ERROR_VARIABLE message
      ECHO_ERROR_VARIABLE
      OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_STRIP_TRAILING_WHITESPACE)
    if(code EQUAL 0)
      set(message "")
    else()
      unset(myops_folder)
      # The terminal has shown the progress lines before it.
      string(REGEX REPLACE ".*\n" "" message "${message}")
    endif()
  else()
    if(root)
      set(places HINTS "${root}" "${root}/include" "${root}/usr/include" NO_DEFAULT_PATH)
    else()
      set(places "")
    endif()
    find_path(myops_folder NAMES "${arg_HEADER}" PATH_SUFFIXES ${arg_SUFFIXES} NO_CACHE ${places})
    if(NOT myops_folder)
      string(CONCAT message
        "[${arg_FIND_NAME}] ${arg_HEADER} should be on this machine, or a Python interpreter that "
        "can fetch it. Received neither. Set ${arg_ROOT_VARIABLE} to a folder that holds "
        "include/${arg_HEADER}, or install Python 3.10 or newer.")
    endif()
  endif()

  if(root AND NOT myops_folder)
    # Going on without the package would ignore what the user asked for.
    message(FATAL_ERROR "${message}")
  endif()
  if(myops_folder)
    set(${result} "${myops_folder}" CACHE PATH "Folder that holds ${arg_HEADER}")
    mark_as_advanced(${result})
  endif()
  set(${arg_FIND_NAME}_FETCH_MESSAGE "${message}" PARENT_SCOPE)
endfunction()
