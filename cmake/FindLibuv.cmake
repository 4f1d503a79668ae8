# Finds libuv, of TREADLE_LIBUV_MIN or newer, shared or static, as the target Libuv::uv; stops with what to install
# where there is none. Its header and library are enough; pkg-config only says where to look first.
set(TREADLE_LIBUV_MIN 1.44)
if(PkgConfig_FOUND)
  pkg_check_modules(LIBUV_PC QUIET libuv)
endif()
find_path(LIBUV_INCLUDE_DIR uv.h HINTS ${LIBUV_PC_INCLUDE_DIRS})
find_library(LIBUV_LIBRARY uv HINTS ${LIBUV_PC_LIBRARY_DIRS})
mark_as_advanced(LIBUV_INCLUDE_DIR LIBUV_LIBRARY)
if(NOT LIBUV_INCLUDE_DIR OR NOT LIBUV_LIBRARY)
  treadle_missing("libuv ${TREADLE_LIBUV_MIN} or newer with its header uv.h"
    DEBIAN libuv1-dev FEDORA libuv-devel ALPINE libuv-dev ARCH libuv)
endif()

set(LIBUV_VERSION "")
file(STRINGS "${LIBUV_INCLUDE_DIR}/uv/version.h" treadle_uv_lines REGEX "^#define UV_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+$")
foreach(part MAJOR MINOR PATCH)
  string(REGEX MATCH "UV_VERSION_${part} +([0-9]+)" treadle_uv_match "${treadle_uv_lines}")
  list(APPEND LIBUV_VERSION "${CMAKE_MATCH_1}")
endforeach()
list(JOIN LIBUV_VERSION "." LIBUV_VERSION)
if(LIBUV_VERSION VERSION_LESS TREADLE_LIBUV_MIN)
  message(FATAL_ERROR "treadle needs libuv ${TREADLE_LIBUV_MIN} or newer, and ${LIBUV_INCLUDE_DIR} has ${LIBUV_VERSION}, "
    "as Ubuntu 22.04 does. treadle's wheels have a newer libuv inside: let pip install one of those, "
    "or build a newer libuv and name its prefix in CMAKE_PREFIX_PATH")
endif()

if(NOT TARGET Libuv::uv)
  add_library(Libuv::uv UNKNOWN IMPORTED)
  set_target_properties(Libuv::uv PROPERTIES
    IMPORTED_LOCATION "${LIBUV_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${LIBUV_INCLUDE_DIR}")
  if(LIBUV_LIBRARY MATCHES "\\.a$")
    # What libuv calls stands in libraries of its own in C libraries before glibc 2.34.
    target_link_libraries(Libuv::uv INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)
  endif()
endif()
