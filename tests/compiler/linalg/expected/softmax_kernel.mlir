module {
  func.func @softmax_kernel(%output_ptr: memref<*xf32>, %input_ptr: memref<*xf32>, %input_row_stride: i32, %output_row_stride: i32, %n_rows: i32, %n_cols: i32, %num_x: i32, %num_y: i32, %num_z: i32, %x: i32, %y: i32, %z: i32) {
    %cst = arith.constant 0 : i32
    %cst_1 = arith.constant 1 : i32
    scf.for %row_idx = %x to %n_rows step %num_x : i32 {
      %index = arith.index_cast %row_idx : i32 to index
      %index_1 = arith.index_cast %input_row_stride : i32 to index
      %step = arith.muli %index, %index_1 : index
      %box = memref.reinterpret_cast %input_ptr to offset: [%step], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
      %c1024 = arith.constant 1024 : index
      %c0 = arith.constant 0 : index
      %index_2 = arith.index_cast %n_cols : i32 to index
      %count = arith.minsi %index_2, %c1024 : index
      %count_1 = arith.maxsi %count, %c0 : index
      %alloc = memref.alloc() : memref<1024xf32>
      %pad = arith.constant 0xFF800000 : f32
      linalg.fill ins(%pad : f32) outs(%alloc : memref<1024xf32>)
      %inside = memref.subview %box[0] [%count_1] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      %inside_1 = memref.subview %alloc[0] [%count_1] [1] : memref<1024xf32> to memref<?xf32, strided<[1]>>
      "memref.copy"(%inside, %inside_1) : (memref<?xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1]>>) -> ()
      %row = bufferization.to_tensor %alloc restrict writable : memref<1024xf32> to tensor<1024xf32>
      %empty = tensor.empty() : tensor<f32>
      %init = linalg.fill ins(%pad : f32) outs(%empty : tensor<f32>) -> tensor<f32>
      %v = linalg.reduce ins(%row : tensor<1024xf32>) outs(%init : tensor<f32>) dimensions = [0] (%in: f32, %acc: f32) {
        %v_1 = arith.maxnumf %in, %acc : f32
        linalg.yield %v_1 : f32
      }
      %v_2 = tensor.extract %v[] : tensor<f32>
      %empty_1 = tensor.empty() : tensor<1024xf32>
      %v_3 = linalg.fill ins(%v_2 : f32) outs(%empty_1 : tensor<1024xf32>) -> tensor<1024xf32>
      %empty_2 = tensor.empty() : tensor<1024xf32>
      %row_minus_max = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%row, %v_3 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_2 : tensor<1024xf32>) {
      ^bb0(%in_1: f32, %in_2: f32, %out: f32):
        %v_4 = arith.subf %in_1, %in_2 : f32
        linalg.yield %v_4 : f32
      } -> tensor<1024xf32>
      %empty_3 = tensor.empty() : tensor<1024xf32>
      %numerator = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%row_minus_max : tensor<1024xf32>) outs(%empty_3 : tensor<1024xf32>) {
      ^bb0(%in_3: f32, %out_1: f32):
        %v_5 = math.exp %in_3 : f32
        linalg.yield %v_5 : f32
      } -> tensor<1024xf32>
      %neutral = arith.constant 0.0 : f32
      %empty_4 = tensor.empty() : tensor<f32>
      %init_1 = linalg.fill ins(%neutral : f32) outs(%empty_4 : tensor<f32>) -> tensor<f32>
      %denominator = linalg.reduce ins(%numerator : tensor<1024xf32>) outs(%init_1 : tensor<f32>) dimensions = [0] (%in_4: f32, %acc_1: f32) {
        %v_6 = arith.addf %in_4, %acc_1 : f32
        linalg.yield %v_6 : f32
      }
      %denominator_1 = tensor.extract %denominator[] : tensor<f32>
      %empty_5 = tensor.empty() : tensor<1024xf32>
      %v_7 = linalg.fill ins(%denominator_1 : f32) outs(%empty_5 : tensor<1024xf32>) -> tensor<1024xf32>
      %empty_6 = tensor.empty() : tensor<1024xf32>
      %softmax_output = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%numerator, %v_7 : tensor<1024xf32>, tensor<1024xf32>) outs(%empty_6 : tensor<1024xf32>) {
      ^bb0(%in_5: f32, %in_6: f32, %out_2: f32):
        %v_8 = arith.divf %in_5, %in_6 : f32
        linalg.yield %v_8 : f32
      } -> tensor<1024xf32>
      %index_3 = arith.index_cast %output_row_stride : i32 to index
      %step_1 = arith.muli %index, %index_3 : index
      %box_1 = memref.reinterpret_cast %output_ptr to offset: [%step_1], sizes: [1024], strides: [1] : memref<*xf32> to memref<1024xf32, strided<[1], offset: ?>>
      %part = tensor.extract_slice %softmax_output[0] [%count_1] [1] : tensor<1024xf32> to tensor<?xf32>
      %inside_2 = memref.subview %box_1[0] [%count_1] [1] : memref<1024xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
      bufferization.materialize_in_destination %part in writable %inside_2 : (tensor<?xf32>, memref<?xf32, strided<[1], offset: ?>>) -> ()
    }
    func.return
  }
}
