# SPDX-License-Identifier: Apache-2.0
# Hard rules about files and binaries, one per call:
#   cmake -DCHECK=<rule> -D<argument>=<value>... -P MyopsChecks.cmake
#
#   isa_symbols     NM, OBJECTS, ISA      each object exports one symbol, myops_..._<ISA>
#   plugin_exports  NM, LIBRARY, SYMBOL   the library exports this symbol only
#   plugin_needed   READELF, LIBRARY      the library links no framework
#   old_systems     READELF, LIBRARY, LIMITS (GLIBC_2.28;...), MODE  it asks for no newer symbols
#   layers          ROOT                  what files under native/ may include and call
#   launches        ROOT                  CUDA launches name a stream, nothing waits
#   headers         ROOT, FOLDERS, LISTED all headers of the folders are in the list
#
# A broken rule is a FATAL_ERROR, which fails the test.
cmake_minimum_required(VERSION 3.25)

function(run_tool output)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "[${CHECK}] this command should work: ${command}. Received ${error}")
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

# The names in nm's output, one per line "address type name".
function(symbol_names output text)
  string(REGEX MATCHALL "[^\n]+" lines "${text}")
  set(names "")
  foreach(line IN LISTS lines)
    if(line MATCHES " [A-Za-z] ([^ ]+)$")
      list(APPEND names ${CMAKE_MATCH_1})
    endif()
  endforeach()
  set(${output} "${names}" PARENT_SCOPE)
endfunction()

# More than one exported symbol is a function the linker may merge with another ISA's copy and then
# run on a machine that lacks the instructions.
function(check_isa_symbols)
  foreach(object IN LISTS OBJECTS)
    run_tool(text ${NM} --extern-only --defined-only ${object})
    symbol_names(names "${text}")
    list(LENGTH names count)
    if(NOT count EQUAL 1 OR NOT names MATCHES "^myops_[a-z_]+_${ISA}$")
      message(FATAL_ERROR "[isa_symbols] ${object} should export one symbol, myops_..._${ISA}. "
                          "Received \"${names}\". Give everything else internal linkage.")
    endif()
  endforeach()
  if(NOT OBJECTS)
    message(FATAL_ERROR "[isa_symbols] there should be objects for ${ISA}. Received none.")
  endif()
endfunction()

function(check_plugin_exports)
  run_tool(text ${NM} --dynamic --extern-only --defined-only ${LIBRARY})
  symbol_names(names "${text}")
  if(NOT names STREQUAL SYMBOL)
    message(FATAL_ERROR "[plugin_exports] ${LIBRARY} should export ${SYMBOL} only. Received "
                        "\"${names}\". Look at the version script.")
  endif()
endfunction()

function(check_plugin_needed)
  run_tool(text ${READELF} --dynamic --wide ${LIBRARY})
  string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*" needed "${text}")
  if(NOT needed)
    message(FATAL_ERROR "[plugin_needed] ${READELF} should list NEEDED entries. Received none.")
  endif()
  string(TOLOWER "${needed}" lower)
  if(lower MATCHES "torch|onnxruntime|python|c10|gomp|iomp|libomp")
    message(FATAL_ERROR "[plugin_needed] ${LIBRARY} should link no framework and no thread pool. "
                        "Received ${needed}")
  endif()
endfunction()

# Names the symbols, which say what in the source or in the compiler is the reason.
function(check_old_systems)
  run_tool(text ${READELF} --dyn-syms --wide ${LIBRARY})
  string(REGEX MATCHALL "UND +[^ \n]+@[A-Z]+_[0-9.]+" symbols "${text}")
  if(NOT symbols)
    message(FATAL_ERROR "[old_systems] ${READELF} should list symbols with versions. Received none.")
  endif()
  set(too_new "")
  foreach(symbol IN LISTS symbols)
    string(REGEX MATCH "UND +([^ @]+)@+([A-Z]+)_([0-9.]+)$" found "${symbol}")
    set(name ${CMAKE_MATCH_1})
    set(family ${CMAKE_MATCH_2})
    set(version ${CMAKE_MATCH_3})
    foreach(limit IN LISTS LIMITS)
      if(limit MATCHES "^${family}_(.+)$" AND version VERSION_GREATER CMAKE_MATCH_1)
        list(APPEND too_new "${name} (${family}_${version})")
      endif()
    endforeach()
  endforeach()
  if(too_new)
    list(JOIN too_new ", " too_new)
    list(JOIN LIMITS ", " limits)
    message(${MODE} "[old_systems] ${LIBRARY} should ask for nothing newer than ${limits}. Received "
                    "${too_new}. Build on an older system, or accept that older ones cannot load it.")
  endif()
endfunction()

# refuse(<file> <text> <what> <regex>): comments are gone from the text.
function(refuse file text what regex)
  if(text MATCHES "${regex}")
    string(STRIP "${CMAKE_MATCH_0}" found)
    message(SEND_ERROR "[${CHECK}] ${file} should hold no ${what}. Received \"${found}\".")
  endif()
endfunction()

function(check_layers)
  set(include "(^|\n)[ \t]*#[ \t]*include[ \t]*[<\"]")
  set(torch "${include}(torch|ATen|c10|caffe2)/")
  set(runtime "${include}(onnxruntime|core/session)[^\n]*")
  set(python "${include}(Python\\.h|nanobind|pybind11)")
  # A list of files would not hold the one that was just added.
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/native/*.hpp ${ROOT}/native/*.cpp
       ${ROOT}/native/*.cuh ${ROOT}/native/*.cu)
  foreach(folder IN ITEMS kernels ort)
    if(NOT files MATCHES "native/${folder}/")
      message(FATAL_ERROR "[layers] ${ROOT}/native/${folder} should hold sources. Received none.")
    endif()
  endforeach()
  foreach(file IN LISTS files)
    file(READ ${ROOT}/${file} text)
    string(REGEX REPLACE "//[^\n]*" "" text "${text}")
    # The one message that nobody returns: a host asks for it by the environment.
    if(NOT file STREQUAL "native/kernels/cpu/finite.cpp")
      refuse(${file} "${text}" "output to the terminal"
             "(^|[^A-Za-z0-9_])(f?printf|puts)[ \t]*\\(|std::(cout|cerr|clog)|${include}iostream")
    endif()
    if(file MATCHES "^native/(kernels|ort)/")
      refuse(${file} "${text}" "torch" "${torch}")
      refuse(${file} "${text}" "Python" "${python}")
      refuse(${file} "${text}" "throw" "(^|[^A-Za-z0-9_])throw([^A-Za-z0-9_]|$)")
    endif()
    if(file MATCHES "^native/(kernels|torch|python)/")
      refuse(${file} "${text}" "ONNX Runtime" "${runtime}")
    endif()
    if(file MATCHES "^native/torch/")
      refuse(${file} "${text}" "Python" "${python}")
    endif()
  endforeach()
endfunction()

# The stream is the host's: a launch names it, and nothing waits, allocates or copies.
function(check_launches)
  file(GLOB files ${ROOT}/native/kernels/cuda/*.cu ${ROOT}/native/kernels/cuda/*.cuh)
  set(launches 0)
  foreach(file IN LISTS files)
    file(READ ${file} text)
    string(REGEX REPLACE "//[^\n]*" "" text "${text}")
    # A semicolon separates CMake's lists.
    string(REPLACE ";" " " text "${text}")
    string(REGEX MATCHALL "<<<[^<>]*>>>" found "${text}")
    string(REGEX MATCHALL "<<<" openings "${text}")
    list(LENGTH found count)
    list(LENGTH openings expected)
    if(NOT count EQUAL expected)
      message(SEND_ERROR "[launches] ${file} should hold launches this rule can read. Received "
                         "${expected} openings, ${count} readable.")
    endif()
    math(EXPR launches "${launches} + ${count}")
    foreach(launch IN LISTS found)
      if(NOT launch MATCHES ", stream>>>$")
        message(SEND_ERROR "[launches] a launch should name the host's stream. Received \"${launch}\" "
                           "in ${file}.")
      endif()
    endforeach()
    refuse(${file} "${text}" "call that waits, allocates, copies or sets the device"
           "cuda(Device|Stream|Event)Synchronize|cudaMalloc|cudaMemcpy|cudaMemset|cudaSetDevice|cudaStream(Default|Legacy|PerThread)"
    )
  endforeach()
  if(launches EQUAL 0)
    message(FATAL_ERROR "[launches] native/kernels/cuda should hold launches. Received none.")
  endif()
endfunction()

function(check_headers)
  foreach(folder IN LISTS FOLDERS)
    file(GLOB_RECURSE found RELATIVE ${ROOT} ${ROOT}/${folder}/*.hpp)
    foreach(header IN LISTS found)
      if(NOT header IN_LIST LISTED)
        message(SEND_ERROR "[headers] ${header} should be compiled alone. Received a list without "
                           "it. Add it in tests/native/CMakeLists.txt.")
      endif()
    endforeach()
  endforeach()
endfunction()

if(NOT COMMAND check_${CHECK})
  message(FATAL_ERROR "[MyopsChecks] CHECK should name a rule of this file. Received \"${CHECK}\".")
endif()
cmake_language(CALL check_${CHECK})
