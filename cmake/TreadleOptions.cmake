# Interface targets for warnings, sanitizers, hardening and debug switches; nothing here is global.
include(CheckCCompilerFlag)
include(CheckIPOSupported)

add_library(treadle_warnings INTERFACE)
target_compile_options(treadle_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wpointer-arith -Wcast-qual -Wwrite-strings
  -Wundef -Wvla -Wimplicit-fallthrough -Wformat=2 -Wdouble-promotion -fno-common
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
  $<$<BOOL:${TREADLE_WERROR}>:-Werror>)

add_library(treadle_pedantic INTERFACE)
target_compile_options(treadle_pedantic INTERFACE -Wpedantic)

# Targets of indirect branches are marked, so that a processor that checks them refuses all others: one instruction more
# in each such function, 1.4 % of the module's own in a turn.
set(treadle_branches "")
if(TREADLE_BRANCH_PROTECTION)
  check_c_compiler_flag(-fcf-protection=full TREADLE_HAVE_CF_PROTECTION)
  check_c_compiler_flag(-mbranch-protection=standard TREADLE_HAVE_BRANCH_PROTECTION)
  if(TREADLE_HAVE_CF_PROTECTION)
    set(treadle_branches -fcf-protection=full)
  elseif(TREADLE_HAVE_BRANCH_PROTECTION)
    set(treadle_branches -mbranch-protection=standard)
  endif()
endif()

add_library(treadle_build INTERFACE)
target_compile_features(treadle_build INTERFACE c_std_11)
target_compile_definitions(treadle_build INTERFACE
  _GNU_SOURCE
  $<$<BOOL:${TREADLE_DEBUG}>:TDL_DEBUG>)
target_compile_options(treadle_build INTERFACE
  "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/="
  # The interpreter is another library, and half of what the module calls is in it: bound at load, called directly.
  $<$<CONFIG:Release,RelWithDebInfo>:-fno-plt>
  $<$<CONFIG:Release,RelWithDebInfo>:-fstack-protector-strong>
  $<$<CONFIG:Release,RelWithDebInfo>:${treadle_branches}>)
target_link_options(treadle_build INTERFACE
  $<$<CONFIG:Release,RelWithDebInfo>:-fno-plt>
  $<$<CONFIG:Release,RelWithDebInfo>:LINKER:-z,relro,-z,now>)
if(NOT TREADLE_SANITIZE)
  target_compile_options(treadle_build INTERFACE
    $<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE>
    $<$<CONFIG:Release,RelWithDebInfo>:-D_FORTIFY_SOURCE=2>)
else()
  list(JOIN TREADLE_SANITIZE "," treadle_sanitizers)
  target_compile_options(treadle_build INTERFACE
    -fsanitize=${treadle_sanitizers} -fno-omit-frame-pointer -g
    $<$<IN_LIST:undefined,${TREADLE_SANITIZE}>:-fno-sanitize-recover=undefined>)
  target_link_options(treadle_build INTERFACE -fsanitize=${treadle_sanitizers})
endif()

# Link-time optimisation lets small calls between the static libraries inline into the module.
check_ipo_supported(RESULT treadle_ipo LANGUAGES C OUTPUT treadle_ipo_why)

# Applies what every compiled target of the project shares; pass PYTHON for code with Python.h in it.
function(treadle_target_settings target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:treadle_warnings>
                                          $<BUILD_INTERFACE:treadle_build>)
  if(NOT "PYTHON" IN_LIST ARGN)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:treadle_pedantic>)
  endif()
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS ON
    C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  if(treadle_ipo AND NOT TREADLE_SANITIZE)
    set_target_properties(${target} PROPERTIES
      INTERPROCEDURAL_OPTIMIZATION_RELEASE ON INTERPROCEDURAL_OPTIMIZATION_RELWITHDEBINFO ON)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-ffat-lto-objects>)
  endif()
endfunction()
