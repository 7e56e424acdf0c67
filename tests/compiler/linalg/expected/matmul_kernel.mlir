module {
  // relies on: N >= 0
  func.func @matmul_kernel(%a_ptr: memref<*xf32>, %b_ptr: memref<*xf32>, %c_ptr: memref<*xf32>, %M: i32, %N: i32, %K: i32, %stride_am: i32, %stride_bk: i32, %stride_cm: i32, %num_x: i32, %num_y: i32, %num_z: i32, %x: i32, %y: i32, %z: i32) {
    %cst = arith.constant 63 : i32
    %v = arith.addi %M, %cst : i32
    %cst_1 = arith.constant 64 : i32
    %v_1 = arith.divsi %v, %cst_1 : i32
    %v_2 = arith.addi %N, %cst : i32
    %v_3 = arith.divsi %v_2, %cst_1 : i32
    %cst_2 = arith.constant 8 : i32
    %v_4 = arith.muli %v_3, %cst_2 : i32
    %v_5 = arith.divsi %x, %v_4 : i32
    %v_6 = arith.muli %v_5, %cst_2 : i32
    %v_7 = arith.subi %v_1, %v_6 : i32
    %v_8 = arith.minsi %v_7, %cst_2 : i32
    %v_9 = arith.remsi %x, %v_4 : i32
    %v_10 = arith.remsi %v_9, %v_8 : i32
    %v_11 = arith.divsi %v_9, %v_8 : i32
    %v_12 = arith.muli %v_11, %cst_1 : i32
    %cst_3 = arith.constant 1 : i32
    %cst_4 = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<64x64xf32>
    %accumulator = linalg.fill ins(%cst_4 : f32) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
    %cst_5 = arith.constant 31 : i32
    %v_13 = arith.addi %K, %cst_5 : i32
    %cst_6 = arith.constant 32 : i32
    %v_14 = arith.divsi %v_13, %cst_6 : i32
    %cst_7 = arith.constant 0 : i32
    %cst_8 = arith.constant 512 : i32
    %v_15 = arith.muli %v_5, %cst_8 : i32
    %v_16 = arith.muli %v_10, %cst_1 : i32
    %v_17 = arith.addi %v_15, %v_16 : i32
    %c = scf.for %k = %cst_7 to %v_14 step %cst_3 iter_args(%accumulator_1 = %accumulator) -> (tensor<64x64xf32>) : i32 {
      %v_18 = arith.muli %k, %cst_6 : i32
      %index = arith.index_cast %v_17 : i32 to index
      %index_1 = arith.index_cast %stride_am : i32 to index
      %step = arith.muli %index, %index_1 : index
      %index_2 = arith.index_cast %v_18 : i32 to index
      %offset = arith.addi %step, %index_2 : index
      %box = memref.reinterpret_cast %a_ptr to offset: [%offset], sizes: [64, 32], strides: [%index_1, 1] : memref<*xf32> to memref<64x32xf32, strided<[?, 1], offset: ?>>
      %c64 = arith.constant 64 : index
      %c0 = arith.constant 0 : index
      %before = arith.subi %c0, %index : index
      %low = arith.maxsi %before, %c0 : index
      %low_1 = arith.minsi %low, %c64 : index
      %index_3 = arith.index_cast %M : i32 to index
      %left = arith.subi %index_3, %index : index
      %high = arith.minsi %left, %c64 : index
      %high_1 = arith.maxsi %high, %low_1 : index
      %count = arith.subi %high_1, %low_1 : index
      %c32 = arith.constant 32 : index
      %before_1 = arith.subi %c0, %index_2 : index
      %low_2 = arith.maxsi %before_1, %c0 : index
      %low_3 = arith.minsi %low_2, %c32 : index
      %index_4 = arith.index_cast %K : i32 to index
      %left_1 = arith.subi %index_4, %index_2 : index
      %high_2 = arith.minsi %left_1, %c32 : index
      %high_3 = arith.maxsi %high_2, %low_3 : index
      %count_1 = arith.subi %high_3, %low_3 : index
      %alloc = memref.alloc() : memref<64x32xf32>
      linalg.fill ins(%cst_4 : f32) outs(%alloc : memref<64x32xf32>)
      %inside = memref.subview %box[%low_1, %low_3] [%count, %count_1] [1, 1] : memref<64x32xf32, strided<[?, 1], offset: ?>> to memref<?x?xf32, strided<[?, 1], offset: ?>>
      %inside_1 = memref.subview %alloc[%low_1, %low_3] [%count, %count_1] [1, 1] : memref<64x32xf32> to memref<?x?xf32, strided<[32, 1], offset: ?>>
      "memref.copy"(%inside, %inside_1) : (memref<?x?xf32, strided<[?, 1], offset: ?>>, memref<?x?xf32, strided<[32, 1], offset: ?>>) -> ()
      %a = bufferization.to_tensor %alloc restrict writable : memref<64x32xf32> to tensor<64x32xf32>
      %index_5 = arith.index_cast %stride_bk : i32 to index
      %step_1 = arith.muli %index_2, %index_5 : index
      %index_6 = arith.index_cast %v_12 : i32 to index
      %offset_1 = arith.addi %step_1, %index_6 : index
      %box_1 = memref.reinterpret_cast %b_ptr to offset: [%offset_1], sizes: [32, 64], strides: [%index_5, 1] : memref<*xf32> to memref<32x64xf32, strided<[?, 1], offset: ?>>
      %before_2 = arith.subi %c0, %index_6 : index
      %low_4 = arith.maxsi %before_2, %c0 : index
      %low_5 = arith.minsi %low_4, %c64 : index
      %index_7 = arith.index_cast %N : i32 to index
      %left_2 = arith.subi %index_7, %index_6 : index
      %high_4 = arith.minsi %left_2, %c64 : index
      %high_5 = arith.maxsi %high_4, %low_5 : index
      %count_2 = arith.subi %high_5, %low_5 : index
      %alloc_1 = memref.alloc() : memref<32x64xf32>
      linalg.fill ins(%cst_4 : f32) outs(%alloc_1 : memref<32x64xf32>)
      %inside_2 = memref.subview %box_1[%low_3, %low_5] [%count_1, %count_2] [1, 1] : memref<32x64xf32, strided<[?, 1], offset: ?>> to memref<?x?xf32, strided<[?, 1], offset: ?>>
      %inside_3 = memref.subview %alloc_1[%low_3, %low_5] [%count_1, %count_2] [1, 1] : memref<32x64xf32> to memref<?x?xf32, strided<[64, 1], offset: ?>>
      "memref.copy"(%inside_2, %inside_3) : (memref<?x?xf32, strided<[?, 1], offset: ?>>, memref<?x?xf32, strided<[64, 1], offset: ?>>) -> ()
      %b = bufferization.to_tensor %alloc_1 restrict writable : memref<32x64xf32> to tensor<32x64xf32>
      %accumulator_2 = linalg.matmul ins(%a, %b : tensor<64x32xf32>, tensor<32x64xf32>) outs(%accumulator_1 : tensor<64x64xf32>) -> tensor<64x64xf32>
      scf.yield %accumulator_2 : tensor<64x64xf32>
    }
    %index_8 = arith.index_cast %v_17 : i32 to index
    %index_9 = arith.index_cast %stride_cm : i32 to index
    %step_2 = arith.muli %index_8, %index_9 : index
    %index_10 = arith.index_cast %v_12 : i32 to index
    %offset_2 = arith.addi %step_2, %index_10 : index
    %box_2 = memref.reinterpret_cast %c_ptr to offset: [%offset_2], sizes: [64, 64], strides: [%index_9, 1] : memref<*xf32> to memref<64x64xf32, strided<[?, 1], offset: ?>>
    %c64_1 = arith.constant 64 : index
    %c0_1 = arith.constant 0 : index
    %before_3 = arith.subi %c0_1, %index_8 : index
    %low_6 = arith.maxsi %before_3, %c0_1 : index
    %low_7 = arith.minsi %low_6, %c64_1 : index
    %index_11 = arith.index_cast %M : i32 to index
    %left_3 = arith.subi %index_11, %index_8 : index
    %high_6 = arith.minsi %left_3, %c64_1 : index
    %high_7 = arith.maxsi %high_6, %low_7 : index
    %count_3 = arith.subi %high_7, %low_7 : index
    %before_4 = arith.subi %c0_1, %index_10 : index
    %low_8 = arith.maxsi %before_4, %c0_1 : index
    %low_9 = arith.minsi %low_8, %c64_1 : index
    %index_12 = arith.index_cast %N : i32 to index
    %left_4 = arith.subi %index_12, %index_10 : index
    %high_8 = arith.minsi %left_4, %c64_1 : index
    %high_9 = arith.maxsi %high_8, %low_9 : index
    %count_4 = arith.subi %high_9, %low_9 : index
    %part = tensor.extract_slice %c[%low_7, %low_9] [%count_3, %count_4] [1, 1] : tensor<64x64xf32> to tensor<?x?xf32>
    %inside_4 = memref.subview %box_2[%low_7, %low_9] [%count_3, %count_4] [1, 1] : memref<64x64xf32, strided<[?, 1], offset: ?>> to memref<?x?xf32, strided<[?, 1], offset: ?>>
    bufferization.materialize_in_destination %part in writable %inside_4 : (tensor<?x?xf32>, memref<?x?xf32, strided<[?, 1], offset: ?>>) -> ()
    func.return
  }
}
