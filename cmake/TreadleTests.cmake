# treadle_add_check(<name> SOURCES a.c [LIBS core wake] [LABELS unit core] [TIMEOUT s] [ARGS ...] [DEFS ...])
# One program per test file, on the check library; treadle_add_test_program makes one without it, and with
# NO_TEST one that is not run by itself. Exit code 77 means skipped. tests/harness is on the include path.
if(PkgConfig_FOUND)
  pkg_check_modules(CHECK IMPORTED_TARGET check)
endif()
if(NOT CHECK_FOUND)
  treadle_missing("the check library for its tests (scripts/setup installs it; or configure with -DTREADLE_BUILD_TESTS=OFF)"
    DEBIAN check FEDORA check-devel ALPINE check-dev ARCH check)
endif()

function(treadle_add_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CHECK;NO_TEST" "TIMEOUT" "SOURCES;LIBS;LABELS;ARGS;DEFS;LINK_OPTIONS")
  add_executable(${name} ${arg_SOURCES})
  list(TRANSFORM arg_LIBS PREPEND "treadle::")
  target_link_libraries(${name} PRIVATE ${arg_LIBS} Threads::Threads)
  target_compile_definitions(${name} PRIVATE ${arg_DEFS})
  target_link_options(${name} PRIVATE ${arg_LINK_OPTIONS})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/harness")
  treadle_target_settings(${name})
  # What a test defines is its own; prototypes ahead of every case would say nothing.
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
  if(arg_CHECK)
    target_link_libraries(${name} PRIVATE PkgConfig::CHECK)
    # check.h's macros use GNU variadics.
    target_compile_options(${name} PRIVATE -Wno-pedantic)
  endif()
  if(arg_NO_TEST)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77)
  if(TREADLE_SANITIZE)
    # check's forks hide the child from the sanitizers' reports; TDL_TEST_SCALE divides the rounds of races.
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
      "CK_FORK=no" "TDL_TEST_SCALE=2"
      "ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1"
      "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1"
      "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1")
  endif()
endfunction()

function(treadle_add_check name)
  treadle_add_test_program(${name} CHECK ${ARGN})
endfunction()

# treadle_copy_source(<out> <source> [from to]...): a copy of a source with replacements, for mutants. A
# replacement that no longer applies stops the build. Texts may not contain a semicolon.
function(treadle_copy_source out source)
  file(READ "${source}" text)
  set(rest ${ARGN})
  while(rest)
    list(POP_FRONT rest from to)
    string(FIND "${text}" "${from}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${source} does not contain \"${from}\" any more: mend its mutant")
    endif()
    string(REPLACE "${from}" "${to}" text "${text}")
  endwhile()
  file(CONFIGURE OUTPUT "${out}" CONTENT "${text}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
endfunction()
