# The layer table: what each library may link and include. It is the link table of the build, and
# tools/layers.py holds every #include against it.
set(TREADLE_LIBS base core wake hold pool resolve fileio)

set(TREADLE_LAYER_base "")
set(TREADLE_LAYER_core base)
set(TREADLE_LAYER_wake base)
set(TREADLE_LAYER_hold base)
set(TREADLE_LAYER_pool base wake)
set(TREADLE_LAYER_resolve base wake pool)
set(TREADLE_LAYER_fileio base wake pool)
set(TREADLE_LAYER_pyloop base core wake hold pool resolve fileio)
set(TREADLE_LAYER_cli base core wake pool resolve fileio)

# Fills out with the targets of the layer's libraries that exist in this tree.
function(treadle_layer_targets layer out)
  set(targets "")
  foreach(lib IN LISTS TREADLE_LAYER_${layer})
    if(TARGET treadle_${lib})
      list(APPEND targets treadle::${lib})
    endif()
  endforeach()
  set(${out} "${targets}" PARENT_SCOPE)
endfunction()
