module {
  func.func @layer_norm_fwd(%X: memref<*xf32>, %Y: memref<*xf32>, %W: memref<*xf32>, %B: memref<*xf32>, %Mean: memref<*xf32>, %Rstd: memref<*xf32>, %stride: i32, %N: i32, %eps: f32, %num_x: i32, %num_y: i32, %num_z: i32, %x: i32, %y: i32, %z: i32) {
    %empty = tensor.empty() : tensor<1024xi32>
    %first = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%empty : tensor<1024xi32>) {
    ^bb0(%out: i32):
      %place = linalg.index 0 : index
      %v = arith.index_cast %place : index to i32
      linalg.yield %v : i32
    } -> tensor<1024xi32>
    %empty_1 = tensor.empty() : tensor<1024xi32>
    %v_1 = linalg.fill ins(%N : i32) outs(%empty_1 : tensor<1024xi32>) -> tensor<1024xi32>
    %empty_2 = tensor.empty() : tensor<1024xi1>
    %v_2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%first, %v_1 : tensor<1024xi32>, tensor<1024xi32>) outs(%empty_2 : tensor<1024xi1>) {
    ^bb0(%in: i32, %in_1: i32, %out_1: i1):
      %v_3 = arith.cmpi slt, %in, %in_1 : i32
      linalg.yield %v_3 : i1
    } -> tensor<1024xi1>
    %cst = arith.constant 0.0 : f32
    %empty_3 = tensor.empty() : tensor<1024xf32>
    %v_4 = linalg.fill ins(%cst : f32) outs(%empty_3 : tensor<1024xf32>) -> tensor<1024xf32>
    %cst_1 = arith.constant 0 : i32
    %cst_2 = arith.constant 1 : i32
    %index = arith.index_cast %x : i32 to index
    %index_1 = arith.index_cast %stride : i32 to index
    %step = arith.muli %index, %index_1 : index
    %box = memref.reinterpret_cast %X to offset: [%step], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
    %c1024 = arith.constant 1024 : index
    %c0 = arith.constant 0 : index
    %index_2 = arith.index_cast %N : i32 to index
    %count = arith.minsi %index_2, %c1024 : index
    %count_1 = arith.maxsi %count, %c0 : index
    %alloc = memref.alloc() : memref<1024xf32>
    linalg.fill ins(%cst : f32) outs(%alloc : memref<1024xf32>)
    %inside = memref.subview %box[0] [%count_1] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    %inside_1 = memref.subview %alloc[0] [%count_1] [1] : memref<1024xf32> to memref<?xf32, strided<[1]>>
    "memref.copy"(%inside, %inside_1) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1]>>) -> ()
    %held = bufferization.to_tensor %alloc restrict writable : memref<1024xf32> to tensor<1024xf32>
    %cst_3 = arith.constant 1024 : i32
    %v_5 = scf.for %off = %cst_3 to %N step %cst_3 iter_args(%_mean = %held) -> (tensor<1024xf32>) : i32 {
      %index_3 = arith.index_cast %off : i32 to index
      %offset = arith.addi %step, %index_3 : index
      %box_1 = memref.reinterpret_cast %X to offset: [%offset], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
      %before = arith.subi %c0, %index_3 : index
      %low = arith.maxsi %before, %c0 : index
      %low_1 = arith.minsi %low, %c1024 : index
      %left = arith.subi %index_2, %index_3 : index
      %high = arith.minsi %left, %c1024 : index
      %high_1 = arith.maxsi %high, %low_1 : index
      %count_2 = arith.subi %high_1, %low_1 : index
      %alloc_1 = memref.alloc() : memref<1024xf32>
      linalg.fill ins(%cst : f32) outs(%alloc_1 : memref<1024xf32>)
      %inside_2 = memref.subview %box_1[%low_1] [%count_2] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      %inside_3 = memref.subview %alloc_1[%low_1] [%count_2] [1] : memref<1024xf32> to memref<?xf32, strided<[1], offset: ?>>
      "memref.copy"(%inside_2, %inside_3) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) -> ()
      %x_1 = bufferization.to_tensor %alloc_1 restrict writable : memref<1024xf32> to tensor<1024xf32>
      %empty_4 = tensor.empty() : tensor<1024xf32>
      %_mean_1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%_mean, %x_1 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_4 : tensor<1024xf32>) {
      ^bb0(%in_2: f32, %in_3: f32, %out_2: f32):
        %v_6 = arith.addf %in_2, %in_3 : f32
        linalg.yield %v_6 : f32
      } -> tensor<1024xf32>
      scf.yield %_mean_1 : tensor<1024xf32>
    }
    %empty_5 = tensor.empty() : tensor<f32>
    %init = linalg.fill ins(%cst : f32) outs(%empty_5 : tensor<f32>) -> tensor<f32>
    %v_7 = linalg.reduce ins(%v_5 : tensor<1024xf32>) outs(%init : tensor<f32>) dimensions = [0] (%in_4: f32, %acc: f32) {
      %v_8 = arith.addf %in_4, %acc : f32
      linalg.yield %v_8 : f32
    }
    %v_9 = tensor.extract %v_7[] : tensor<f32>
    %v_10 = arith.sitofp %N : i32 to f32
    %v_11 = arith.divf %v_9, %v_10 : f32
    %empty_6 = tensor.empty() : tensor<1024xf32>
    %v_12 = linalg.fill ins(%v_11 : f32) outs(%empty_6 : tensor<1024xf32>) -> tensor<1024xf32>
    %empty_7 = tensor.empty() : tensor<1024xf32>
    %v_13 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%held, %v_12 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_7 : tensor<1024xf32>) {
    ^bb0(%in_5: f32, %in_6: f32, %out_3: f32):
      %v_14 = arith.subf %in_5, %in_6 : f32
      linalg.yield %v_14 : f32
    } -> tensor<1024xf32>
    %empty_8 = tensor.empty() : tensor<1024xf32>
    %held_1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v_2, %v_13, %v_4 : tensor<1024xi1>, tensor<1024xf32>, tensor<1024xf32>) outs(%empty_8 : tensor<1024xf32>) {
    ^bb0(%in_7: i1, %in_8: f32, %in_9: f32, %out_4: f32):
      %v_15 = arith.select %in_7, %in_8, %in_9 : f32
      linalg.yield %v_15 : f32
    } -> tensor<1024xf32>
    %empty_9 = tensor.empty() : tensor<1024xf32>
    %_var = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%held_1, %held_1 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_9 : tensor<1024xf32>) {
    ^bb0(%in_10: f32, %in_11: f32, %out_5: f32):
      %v_16 = arith.mulf %in_10, %in_11 : f32
      linalg.yield %v_16 : f32
    } -> tensor<1024xf32>
    %v_17 = scf.for %off_1 = %cst_3 to %N step %cst_3 iter_args(%_var_1 = %_var) -> (tensor<1024xf32>) : i32 {
      %empty_10 = tensor.empty() : tensor<1024xi32>
      %v_18 = linalg.fill ins(%off_1 : i32) outs(%empty_10 : tensor<1024xi32>) -> tensor<1024xi32>
      %empty_11 = tensor.empty() : tensor<1024xi32>
      %cols = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v_18, %first : tensor<1024xi32>, tensor<1024xi32>) outs(%empty_11 : tensor<1024xi32>) {
      ^bb0(%in_12: i32, %in_13: i32, %out_6: i32):
        %v_19 = arith.addi %in_12, %in_13 : i32
        linalg.yield %v_19 : i32
      } -> tensor<1024xi32>
      %empty_12 = tensor.empty() : tensor<1024xi1>
      %v_20 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%cols, %v_1 : tensor<1024xi32>, tensor<1024xi32>) outs(%empty_12 : tensor<1024xi1>) {
      ^bb0(%in_14: i32, %in_15: i32, %out_7: i1):
        %v_21 = arith.cmpi slt, %in_14, %in_15 : i32
        linalg.yield %v_21 : i1
      } -> tensor<1024xi1>
      %index_4 = arith.index_cast %off_1 : i32 to index
      %offset_1 = arith.addi %step, %index_4 : index
      %box_2 = memref.reinterpret_cast %X to offset: [%offset_1], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
      %before_1 = arith.subi %c0, %index_4 : index
      %low_2 = arith.maxsi %before_1, %c0 : index
      %low_3 = arith.minsi %low_2, %c1024 : index
      %left_1 = arith.subi %index_2, %index_4 : index
      %high_2 = arith.minsi %left_1, %c1024 : index
      %high_3 = arith.maxsi %high_2, %low_3 : index
      %count_3 = arith.subi %high_3, %low_3 : index
      %alloc_2 = memref.alloc() : memref<1024xf32>
      linalg.fill ins(%cst : f32) outs(%alloc_2 : memref<1024xf32>)
      %inside_4 = memref.subview %box_2[%low_3] [%count_3] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      %inside_5 = memref.subview %alloc_2[%low_3] [%count_3] [1] : memref<1024xf32> to memref<?xf32, strided<[1], offset: ?>>
      "memref.copy"(%inside_4, %inside_5) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) -> ()
      %x_2 = bufferization.to_tensor %alloc_2 restrict writable : memref<1024xf32> to tensor<1024xf32>
      %empty_13 = tensor.empty() : tensor<1024xf32>
      %v_22 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x_2, %v_12 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_13 : tensor<1024xf32>) {
      ^bb0(%in_16: f32, %in_17: f32, %out_8: f32):
        %v_23 = arith.subf %in_16, %in_17 : f32
        linalg.yield %v_23 : f32
      } -> tensor<1024xf32>
      %empty_14 = tensor.empty() : tensor<1024xf32>
      %x_3 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v_20, %v_22, %v_4 : tensor<1024xi1>, tensor<1024xf32>, tensor<1024xf32>) outs(%empty_14 : tensor<1024xf32>) {
      ^bb0(%in_18: i1, %in_19: f32, %in_20: f32, %out_9: f32):
        %v_24 = arith.select %in_18, %in_19, %in_20 : f32
        linalg.yield %v_24 : f32
      } -> tensor<1024xf32>
      %empty_15 = tensor.empty() : tensor<1024xf32>
      %v_25 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x_3, %x_3 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_15 : tensor<1024xf32>) {
      ^bb0(%in_21: f32, %in_22: f32, %out_10: f32):
        %v_26 = arith.mulf %in_21, %in_22 : f32
        linalg.yield %v_26 : f32
      } -> tensor<1024xf32>
      %empty_16 = tensor.empty() : tensor<1024xf32>
      %_var_2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%_var_1, %v_25 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_16 : tensor<1024xf32>) {
      ^bb0(%in_23: f32, %in_24: f32, %out_11: f32):
        %v_27 = arith.addf %in_23, %in_24 : f32
        linalg.yield %v_27 : f32
      } -> tensor<1024xf32>
      scf.yield %_var_2 : tensor<1024xf32>
    }
    %empty_17 = tensor.empty() : tensor<f32>
    %init_1 = linalg.fill ins(%cst : f32) outs(%empty_17 : tensor<f32>) -> tensor<f32>
    %v_28 = linalg.reduce ins(%v_17 : tensor<1024xf32>) outs(%init_1 : tensor<f32>) dimensions = [0] (%in_25: f32, %acc_1: f32) {
      %v_29 = arith.addf %in_25, %acc_1 : f32
      linalg.yield %v_29 : f32
    }
    %v_30 = tensor.extract %v_28[] : tensor<f32>
    %v_31 = arith.divf %v_30, %v_10 : f32
    %v_32 = arith.addf %v_31, %eps : f32
    %v_33 = math.sqrt %v_32 : f32
    %cst_4 = arith.constant 1.00000000000000000e+00 : f32
    %v_34 = arith.divf %cst_4, %v_33 : f32
    %box_3 = memref.reinterpret_cast %Mean to offset: [%index], sizes: [1], strides: [1] : memref<*xf32> to memref<1xf32, strided<[1], offset: ?>>
    memref.store %v_11, %box_3[%c0] : memref<1xf32, strided<[1], offset: ?>>
    %box_4 = memref.reinterpret_cast %Rstd to offset: [%index], sizes: [1], strides: [1] : memref<*xf32> to memref<1xf32, strided<[1], offset: ?>>
    memref.store %v_34, %box_4[%c0] : memref<1xf32, strided<[1], offset: ?>>
    %box_5 = memref.reinterpret_cast %W to offset: [%c0], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
    %alloc_3 = memref.alloc() : memref<1024xf32>
    linalg.fill ins(%cst : f32) outs(%alloc_3 : memref<1024xf32>)
    %inside_6 = memref.subview %box_5[0] [%count_1] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    %inside_7 = memref.subview %alloc_3[0] [%count_1] [1] : memref<1024xf32> to memref<?xf32, strided<[1]>>
    "memref.copy"(%inside_6, %inside_7) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1]>>) -> ()
    %w = bufferization.to_tensor %alloc_3 restrict writable : memref<1024xf32> to tensor<1024xf32>
    %box_6 = memref.reinterpret_cast %B to offset: [%c0], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
    %alloc_4 = memref.alloc() : memref<1024xf32>
    linalg.fill ins(%cst : f32) outs(%alloc_4 : memref<1024xf32>)
    %inside_8 = memref.subview %box_6[0] [%count_1] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    %inside_9 = memref.subview %alloc_4[0] [%count_1] [1] : memref<1024xf32> to memref<?xf32, strided<[1]>>
    "memref.copy"(%inside_8, %inside_9) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1]>>) -> ()
    %b = bufferization.to_tensor %alloc_4 restrict writable : memref<1024xf32> to tensor<1024xf32>
    %empty_18 = tensor.empty() : tensor<1024xf32>
    %v_35 = linalg.fill ins(%v_34 : f32) outs(%empty_18 : tensor<1024xf32>) -> tensor<1024xf32>
    %empty_19 = tensor.empty() : tensor<1024xf32>
    %v_36 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%held_1, %v_35 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_19 : tensor<1024xf32>) {
    ^bb0(%in_26: f32, %in_27: f32, %out_12: f32):
      %v_37 = arith.mulf %in_26, %in_27 : f32
      linalg.yield %v_37 : f32
    } -> tensor<1024xf32>
    %empty_20 = tensor.empty() : tensor<1024xf32>
    %v_38 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v_36, %w : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_20 : tensor<1024xf32>) {
    ^bb0(%in_28: f32, %in_29: f32, %out_13: f32):
      %v_39 = arith.mulf %in_28, %in_29 : f32
      linalg.yield %v_39 : f32
    } -> tensor<1024xf32>
    %empty_21 = tensor.empty() : tensor<1024xf32>
    %v_40 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v_38, %b : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_21 : tensor<1024xf32>) {
    ^bb0(%in_30: f32, %in_31: f32, %out_14: f32):
      %v_41 = arith.addf %in_30, %in_31 : f32
      linalg.yield %v_41 : f32
    } -> tensor<1024xf32>
    %box_7 = memref.reinterpret_cast %Y to offset: [%step], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
    %part = tensor.extract_slice %v_40[0] [%count_1] [1] : tensor<1024xf32> to tensor<?xf32>
    %inside_10 = memref.subview %box_7[0] [%count_1] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    bufferization.materialize_in_destination %part in writable %inside_10 : (tensor<?xf32>, memref<?xf32, strided<[1], offset: ?>>) -> ()
    scf.for %off_2 = %cst_3 to %N step %cst_3 : i32 {
      %index_5 = arith.index_cast %off_2 : i32 to index
      %box_8 = memref.reinterpret_cast %W to offset: [%index_5], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
      %before_2 = arith.subi %c0, %index_5 : index
      %low_4 = arith.maxsi %before_2, %c0 : index
      %low_5 = arith.minsi %low_4, %c1024 : index
      %left_2 = arith.subi %index_2, %index_5 : index
      %high_4 = arith.minsi %left_2, %c1024 : index
      %high_5 = arith.maxsi %high_4, %low_5 : index
      %count_4 = arith.subi %high_5, %low_5 : index
      %alloc_5 = memref.alloc() : memref<1024xf32>
      linalg.fill ins(%cst : f32) outs(%alloc_5 : memref<1024xf32>)
      %inside_11 = memref.subview %box_8[%low_5] [%count_4] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      %inside_12 = memref.subview %alloc_5[%low_5] [%count_4] [1] : memref<1024xf32> to memref<?xf32, strided<[1], offset: ?>>
      "memref.copy"(%inside_11, %inside_12) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) -> ()
      %w_1 = bufferization.to_tensor %alloc_5 restrict writable : memref<1024xf32> to tensor<1024xf32>
      %box_9 = memref.reinterpret_cast %B to offset: [%index_5], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
      %alloc_6 = memref.alloc() : memref<1024xf32>
      linalg.fill ins(%cst : f32) outs(%alloc_6 : memref<1024xf32>)
      %inside_13 = memref.subview %box_9[%low_5] [%count_4] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      %inside_14 = memref.subview %alloc_6[%low_5] [%count_4] [1] : memref<1024xf32> to memref<?xf32, strided<[1], offset: ?>>
      "memref.copy"(%inside_13, %inside_14) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) -> ()
      %b_1 = bufferization.to_tensor %alloc_6 restrict writable : memref<1024xf32> to tensor<1024xf32>
      %offset_2 = arith.addi %step, %index_5 : index
      %box_10 = memref.reinterpret_cast %X to offset: [%offset_2], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
      %alloc_7 = memref.alloc() : memref<1024xf32>
      linalg.fill ins(%cst : f32) outs(%alloc_7 : memref<1024xf32>)
      %inside_15 = memref.subview %box_10[%low_5] [%count_4] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      %inside_16 = memref.subview %alloc_7[%low_5] [%count_4] [1] : memref<1024xf32> to memref<?xf32, strided<[1], offset: ?>>
      "memref.copy"(%inside_15, %inside_16) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) -> ()
      %x_4 = bufferization.to_tensor %alloc_7 restrict writable : memref<1024xf32> to tensor<1024xf32>
      %empty_22 = tensor.empty() : tensor<1024xf32>
      %v_42 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x_4, %v_12 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_22 : tensor<1024xf32>) {
      ^bb0(%in_32: f32, %in_33: f32, %out_15: f32):
        %v_43 = arith.subf %in_32, %in_33 : f32
        linalg.yield %v_43 : f32
      } -> tensor<1024xf32>
      %empty_23 = tensor.empty() : tensor<1024xf32>
      %v_44 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v_42, %v_35 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_23 : tensor<1024xf32>) {
      ^bb0(%in_34: f32, %in_35: f32, %out_16: f32):
        %v_45 = arith.mulf %in_34, %in_35 : f32
        linalg.yield %v_45 : f32
      } -> tensor<1024xf32>
      %empty_24 = tensor.empty() : tensor<1024xf32>
      %v_46 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v_44, %w_1 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_24 : tensor<1024xf32>) {
      ^bb0(%in_36: f32, %in_37: f32, %out_17: f32):
        %v_47 = arith.mulf %in_36, %in_37 : f32
        linalg.yield %v_47 : f32
      } -> tensor<1024xf32>
      %empty_25 = tensor.empty() : tensor<1024xf32>
      %v_48 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v_46, %b_1 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_25 : tensor<1024xf32>) {
      ^bb0(%in_38: f32, %in_39: f32, %out_18: f32):
        %v_49 = arith.addf %in_38, %in_39 : f32
        linalg.yield %v_49 : f32
      } -> tensor<1024xf32>
      %box_11 = memref.reinterpret_cast %Y to offset: [%offset_2], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
      %part_1 = tensor.extract_slice %v_48[%low_5] [%count_4] [1] : tensor<1024xf32> to tensor<?xf32>
      %inside_17 = memref.subview %box_11[%low_5] [%count_4] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      bufferization.materialize_in_destination %part_1 in writable %inside_17 : (tensor<?xf32>, memref<?xf32, strided<[1], offset: ?>>) -> ()
    }
    func.return
  }
}
