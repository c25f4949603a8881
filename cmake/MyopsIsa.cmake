# SPDX-License-Identifier: Apache-2.0
# The only file with -march. Compiles a source once per ISA and adds the objects to a target.
include_guard()

# GCC turns a clamp before exp into separate paths ("jump threading"), one of which divides into
# denormals; -fno-thread-jumps keeps the loop one straight line. -ffp-contract=off leaves every
# fused multiply-add to the source, so all ISAs with FMA give the same bits.
set(MYOPS_KERNEL_FLAGS -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off
                       -fvisibility=hidden)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND MYOPS_KERNEL_FLAGS -fno-thread-jumps)
  # GCC 12 warns inside its own AVX-512 headers.
  list(APPEND MYOPS_KERNEL_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(known_isas baseline v3 v4)
  set(MYOPS_ISA_FLAGS_baseline -march=x86-64)
  set(MYOPS_ISA_FLAGS_v3 -march=x86-64-v3)
  set(MYOPS_ISA_FLAGS_v4 -march=x86-64-v4 -mprefer-vector-width=512)
else()
  set(known_isas baseline)
  set(MYOPS_ISA_FLAGS_baseline "")
endif()
set(MYOPS_ISAS ${known_isas} CACHE STRING "The ISAs to build: all, or only baseline")
if(NOT (MYOPS_ISAS STREQUAL known_isas OR MYOPS_ISAS STREQUAL "baseline"))
  message(FATAL_ERROR "[myops] MYOPS_ISAS should be \"${known_isas}\" or \"baseline\". Received "
                      "\"${MYOPS_ISAS}\". Set one of these.")
endif()

# myops_add_isa_sources(<target> <source>...)
function(myops_add_isa_sources target)
  foreach(isa IN LISTS MYOPS_ISAS)
    set(objects ${target}_${isa})
    add_library(${objects} OBJECT ${ARGN})
    target_include_directories(${objects} PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
    target_compile_features(${objects} PRIVATE cxx_std_17)
    target_compile_definitions(${objects} PRIVATE MYOPS_ISA_NAME=${isa}
                                                  $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
    target_compile_options(${objects} PRIVATE ${MYOPS_WARNINGS} ${MYOPS_KERNEL_FLAGS}
                                              ${MYOPS_ISA_FLAGS_${isa}})
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
    myops_sanitize(${objects})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
