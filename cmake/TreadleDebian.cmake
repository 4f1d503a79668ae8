# Debian packages by CPack (cpack -G DEB, configured with -DCMAKE_INSTALL_PREFIX=/usr): libtreadle-dev with libraries, headers,
# package files and the C examples, and treadle-tools with the tools and their man pages.
set(treadle_doc_dir "${CMAKE_INSTALL_DATADIR}/doc")
set(treadle_packages "dev;libtreadle-dev")
if(TREADLE_BUILD_CLI)
  list(APPEND treadle_packages cli treadle-tools)
endif()

# The changelog in the form that Debian reads, dated as what is built. Reproducible where SOURCE_DATE_EPOCH says the date.
set(TREADLE_MAINTAINER "treadle maintainers <maintainers@treadle.example>" CACHE STRING "Whom Debian packages name")
find_program(TREADLE_GZIP gzip)
mark_as_advanced(TREADLE_GZIP)
string(TIMESTAMP treadle_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/debian/changelog" @ONLY CONTENT
"treadle (@PROJECT_VERSION@) unstable; urgency=medium

  * See the project's CHANGELOG.md.

 -- @TREADLE_MAINTAINER@  @treadle_date@
")
file(READ LICENSE-MIT treadle_mit)
string(STRIP "${treadle_mit}" treadle_mit)
string(REPLACE "\n\n" "\n.\n" treadle_mit "${treadle_mit}")
string(REPLACE "\n" "\n " treadle_mit "${treadle_mit}")
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/debian/copyright" @ONLY CONTENT
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: treadle

Files: *
Copyright: 2026 the authors of treadle
License: Apache-2.0 or Expat

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

License: Expat
 @treadle_mit@
")
if(TREADLE_GZIP)
  execute_process(COMMAND "${TREADLE_GZIP}" -9nfk "${PROJECT_BINARY_DIR}/debian/changelog")
endif()
while(treadle_packages)
  list(POP_FRONT treadle_packages component package)
  install(FILES "${PROJECT_BINARY_DIR}/debian/copyright" DESTINATION "${treadle_doc_dir}/${package}" COMPONENT ${component})
  install(FILES "${PROJECT_BINARY_DIR}/debian/changelog.gz" DESTINATION "${treadle_doc_dir}/${package}" COMPONENT ${component}
    OPTIONAL)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  list(APPEND CPACK_COMPONENTS_ALL ${component})
endwhile()
install(DIRECTORY examples/c examples/cpp DESTINATION "${treadle_doc_dir}/libtreadle-dev/examples" COMPONENT dev)
install(FILES examples/CMakeLists.txt DESTINATION "${treadle_doc_dir}/libtreadle-dev/examples" COMPONENT dev)

set(CPACK_PACKAGE_VENDOR treadle)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "asyncio event loop in C, built of small libraries")
set(CPACK_PACKAGE_CONTACT "${TREADLE_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${TREADLE_MAINTAINER}")
set(CPACK_VERBATIM_VARIABLES TRUE)
set(CPACK_STRIP_FILES TRUE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DESCRIPTION "Scheduling, waking, pools of threads, bounded lookups and file operations on
io_uring, each a static library of its own with headers, CMake package and
pkg-config file.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libc6-dev")
set(CPACK_DEBIAN_CLI_PACKAGE_SECTION utils)
set(CPACK_COMPONENT_CLI_DESCRIPTION "Tools that time wakes, schedulers, lookups, file operations and pools of
threads on this machine, and one that compares what they wrote.")
set(CPACK_DEBIAN_CLI_PACKAGE_DEPENDS "python3")
set(CPACK_DEBIAN_CLI_PACKAGE_SHLIBDEPS ON)
include(CPack)
