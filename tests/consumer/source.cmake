# Called by CTest: configures this tree as on a machine that has less than this one.
#   bare       no pkg-config, and headers of liburing and libaio that break a build that includes them: all is built
#   no_libuv   nothing of libuv is found: what to install is named for each family of systems
#   old_libuv  libuv 1.43, which Ubuntu 22.04 has: the version is named, before anything is compiled
file(REMOVE_RECURSE "${WORK}")
foreach(header liburing.h libaio.h)
  file(WRITE "${WORK}/poison/${header}" "#error treadle needs no ${header}\n")
endforeach()

set(options -G Ninja -DCMAKE_C_COMPILER=${CC} -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON "-DCMAKE_C_FLAGS=-I${WORK}/poison"
  -DCMAKE_BUILD_TYPE=Debug -DTREADLE_BUILD_PYTHON=ON -DTREADLE_BUILD_TESTS=OFF -DTREADLE_BUILD_CLI=OFF
  -DPython_EXECUTABLE=${PYTHON})
if(CASE STREQUAL "no_libuv")
  list(APPEND options -DCMAKE_FIND_ROOT_PATH=${WORK} -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY)
  set(wanted "libuv1-dev on Debian" "libuv-devel on Fedora" "libuv-dev on Alpine" "libuv on Arch")
elseif(CASE STREQUAL "old_libuv")
  file(WRITE "${WORK}/old/uv.h" "")
  file(WRITE "${WORK}/old/uv/version.h" "#define UV_VERSION_MAJOR 1\n#define UV_VERSION_MINOR 43\n#define UV_VERSION_PATCH 0\n")
  list(APPEND options -DLIBUV_INCLUDE_DIR=${WORK}/old)
  set(wanted "has 1.43.0" "Ubuntu 22.04" "CMAKE_PREFIX_PATH")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} -S "${SOURCE}" -B "${WORK}/build" ${options}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT CASE STREQUAL "bare")
  if(result EQUAL 0)
    message(FATAL_ERROR "configured all the same:\n${output}")
  endif()
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  foreach(words IN LISTS wanted)
    string(FIND "${output}" "${words}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "not told \"${words}\":\n${output}")
    endif()
  endforeach()
  return()
endif()
if(result EQUAL 0)
  execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK}/build" -j 2
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
endif()
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${output}")
endif()
