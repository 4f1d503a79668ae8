# treadle_add_library(<name> SOURCES a.c b.c HEADERS x.h y.h [LINK target...])
# Makes the static library treadle_<name> (alias treadle::<name>) of libs/<name>. SOURCES are names in
# src/, HEADERS names in include/treadle/. It links what the layer table allows, and LINK privately.
function(treadle_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;LINK")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES OR NOT arg_HEADERS)
    message(FATAL_ERROR "treadle_add_library(${name} SOURCES a.c HEADERS a.h [LINK ...])")
  endif()
  if(NOT DEFINED TREADLE_LAYER_${name})
    message(FATAL_ERROR "libs/${name} has no line in cmake/TreadleLayers.cmake")
  endif()
  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/src/")
  list(TRANSFORM arg_HEADERS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/include/treadle/")

  set(target treadle_${name})
  add_library(${target} STATIC)
  add_library(treadle::${name} ALIAS ${target})
  target_sources(${target} PRIVATE ${arg_SOURCES}
    PUBLIC FILE_SET HEADERS BASE_DIRS "${CMAKE_CURRENT_SOURCE_DIR}/include" FILES ${arg_HEADERS})
  treadle_layer_targets(${name} below)
  target_link_libraries(${target} PUBLIC ${below} PRIVATE ${arg_LINK})
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  treadle_target_settings(${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  if(TREADLE_INSTALL)
    install(TARGETS ${target} EXPORT treadleTargets
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
      FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
  endif()
endfunction()
