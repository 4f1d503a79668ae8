# Called by CTest: succeeds when PROGRAM fails, in whatever way, and shows how.
if(NOT EXISTS "${PROGRAM}")
  message(FATAL_ERROR "not built: ${PROGRAM}")
endif()
execute_process(COMMAND "${PROGRAM}" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result STREQUAL "0")
  message(FATAL_ERROR "not caught: ${PROGRAM} passed")
endif()
message(STATUS "caught (${result}): ${output}")
