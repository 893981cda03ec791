# SPDX-License-Identifier: MIT
# flextrain_test(NAME SOURCES file... [LIBS target...] [TIMEOUT seconds])
# One GoogleTest program, registered with ctest as one test.
function(flextrain_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()

# flextrain_runs_mpi(TEST...): Open MPI keeps memory until the process ends, which the leak checker
# of the sanitizers would report.
function(flextrain_runs_mpi)
  if(FLEXTRAIN_SANITIZE)
    set_tests_properties(${ARGN} PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
endfunction()
