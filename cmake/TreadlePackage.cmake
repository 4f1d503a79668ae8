# The installed CMake package (treadle::<lib>) and the pkg-config files.
include(CMakePackageConfigHelpers)

set(treadle_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/treadle)
install(EXPORT treadleTargets NAMESPACE treadle:: DESTINATION ${treadle_cmake_dir} COMPONENT dev)
configure_package_config_file(cmake/treadleConfig.cmake.in
  "${PROJECT_BINARY_DIR}/treadleConfig.cmake" INSTALL_DESTINATION ${treadle_cmake_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/treadleConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/treadleConfig.cmake" "${PROJECT_BINARY_DIR}/treadleConfigVersion.cmake"
  DESTINATION ${treadle_cmake_dir} COMPONENT dev)

# Relative to the .pc file, so that the installed tree can be moved.
file(RELATIVE_PATH treadle_pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" treadle_pc_prefix "\${pcfiledir}/${treadle_pc_prefix}")
if(TREADLE_SHARED)
  configure_file(cmake/treadle.pc.in "${PROJECT_BINARY_DIR}/treadle.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/treadle.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endif()
foreach(lib IN LISTS TREADLE_LIBS)
  if(TARGET treadle_${lib})
    set(treadle_pc_name ${lib})
    list(TRANSFORM TREADLE_LAYER_${lib} PREPEND "treadle-" OUTPUT_VARIABLE below)
    list(JOIN below ", " treadle_pc_requires)
    configure_file(cmake/treadle-lib.pc.in "${PROJECT_BINARY_DIR}/treadle-${lib}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/treadle-${lib}.pc"
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
  endif()
endforeach()
