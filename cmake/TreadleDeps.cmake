# What is found once and used by several folders.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig)

# treadle_missing(<what> DEBIAN p FEDORA p ALPINE p ARCH p): stops and names the packages that have it.
function(treadle_missing what)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DEBIAN;FEDORA;ALPINE;ARCH" "")
  message(FATAL_ERROR "treadle needs ${what}. It is in the package\n"
    "  ${arg_DEBIAN} on Debian and Ubuntu\n  ${arg_FEDORA} on Fedora\n"
    "  ${arg_ALPINE} on Alpine\n  ${arg_ARCH} on Arch Linux")
endfunction()
