module {
  func.func @add_kernel(%x_ptr: memref<*xf32>, %y_ptr: memref<*xf32>, %output_ptr: memref<*xf32>, %n_elements: i32, %num_x: i32, %num_y: i32, %num_z: i32, %x: i32, %y: i32, %z: i32) {
    %cst = arith.constant 1024 : i32
    %v = arith.muli %x, %cst : i32
    %cst_1 = arith.constant 1 : i32
    %index = arith.index_cast %v : i32 to index
    %box = memref.reinterpret_cast %x_ptr to offset: [%index], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
    %c1024 = arith.constant 1024 : index
    %c0 = arith.constant 0 : index
    %before = arith.subi %c0, %index : index
    %low = arith.maxsi %before, %c0 : index
    %low_1 = arith.minsi %low, %c1024 : index
    %index_1 = arith.index_cast %n_elements : i32 to index
    %left = arith.subi %index_1, %index : index
    %high = arith.minsi %left, %c1024 : index
    %high_1 = arith.maxsi %high, %low_1 : index
    %count = arith.subi %high_1, %low_1 : index
    %alloc = memref.alloc() : memref<1024xf32>
    %pad = arith.constant 0.0 : f32
    linalg.fill ins(%pad : f32) outs(%alloc : memref<1024xf32>)
    %inside = memref.subview %box[%low_1] [%count] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    %inside_1 = memref.subview %alloc[%low_1] [%count] [1] : memref<1024xf32> to memref<?xf32, strided<[1], offset: ?>>
    "memref.copy"(%inside, %inside_1) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) -> ()
    %x_1 = bufferization.to_tensor %alloc restrict writable : memref<1024xf32> to tensor<1024xf32>
    %box_1 = memref.reinterpret_cast %y_ptr to offset: [%index], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
    %alloc_1 = memref.alloc() : memref<1024xf32>
    linalg.fill ins(%pad : f32) outs(%alloc_1 : memref<1024xf32>)
    %inside_2 = memref.subview %box_1[%low_1] [%count] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    %inside_3 = memref.subview %alloc_1[%low_1] [%count] [1] : memref<1024xf32> to memref<?xf32, strided<[1], offset: ?>>
    "memref.copy"(%inside_2, %inside_3) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>) -> ()
    %y_1 = bufferization.to_tensor %alloc_1 restrict writable : memref<1024xf32> to tensor<1024xf32>
    %empty = tensor.empty() : tensor<1024xf32>
    %output = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x_1, %y_1 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty : tensor<1024xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %v_1 = arith.addf %in, %in_1 : f32
      linalg.yield %v_1 : f32
    } -> tensor<1024xf32>
    %box_2 = memref.reinterpret_cast %output_ptr to offset: [%index], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
    %part = tensor.extract_slice %output[%low_1] [%count] [1] : tensor<1024xf32> to tensor<?xf32>
    %inside_4 = memref.subview %box_2[%low_1] [%count] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    bufferization.materialize_in_destination %part in writable %inside_4 : (tensor<?xf32>, memref<?xf32, strided<[1], offset: ?>>) -> ()
    func.return
  }
}
