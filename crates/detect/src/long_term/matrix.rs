//! Small symmetric positive definite matrices, in rows.

/// The inverse of a symmetric positive definite matrix by its Cholesky factor; `None` if the matrix is not positive
/// definite within the precision of the numbers.
pub(super) fn inverse(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    let mut factor = vec![vec![0.0; n]; n];
    for row in 0..n {
        for column in 0..=row {
            let product: f64 = (0..column).map(|k| factor[row][k] * factor[column][k]).sum();
            let left = matrix[row][column] - product;
            if row == column {
                if left.is_nan() || left <= matrix[row][row] * 1e-12 {
                    return None;
                }
                factor[row][row] = left.sqrt();
            } else {
                factor[row][column] = left / factor[column][column];
            }
        }
    }
    let columns: Vec<Vec<f64>> = (0..n).map(|unit| solve(&factor, unit)).collect();
    Some(columns)
}

/// Solves `L Lᵀ x = e` for the unit vector `e` with this index.
fn solve(factor: &[Vec<f64>], unit: usize) -> Vec<f64> {
    let n = factor.len();
    let mut x = vec![0.0; n];
    for row in 0..n {
        let product: f64 = (0..row).map(|k| factor[row][k] * x[k]).sum();
        x[row] = (f64::from(u8::from(row == unit)) - product) / factor[row][row];
    }
    for row in (0..n).rev() {
        let product: f64 = (row + 1..n).map(|k| factor[k][row] * x[k]).sum();
        x[row] = (x[row] - product) / factor[row][row];
    }
    x
}

/// The product of two matrices.
pub(super) fn product(left: &[Vec<f64>], right: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = right.first().map_or(0, Vec::len);
    let cell = |row: &[f64], column: usize| row.iter().zip(right).map(|(value, other)| value * other[column]).sum();
    left.iter().map(|row| (0..n).map(|column| cell(row, column)).collect()).collect()
}

/// The sum of the diagonal.
pub(super) fn trace(matrix: &[Vec<f64>]) -> f64 {
    matrix.iter().enumerate().map(|(index, row)| row[index]).sum()
}

/// The quadratic form `xᵀ A x`.
pub(super) fn quadratic(matrix: &[Vec<f64>], x: &[f64]) -> f64 {
    matrix.iter().zip(x).map(|(row, left)| left * row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn a_matrix_times_its_inverse_is_the_identity() {
        let seed = testkit::seed("a_matrix_times_its_inverse_is_the_identity");
        let mut prng = Prng::new(seed);
        for n in 1..=16 {
            let root: Vec<Vec<f64>> = (0..n).map(|_| (0..n).map(|_| prng.unit() - 0.5).collect()).collect();
            let transposed: Vec<Vec<f64>> = (0..n).map(|c| root.iter().map(|row| row[c]).collect()).collect();
            let mut matrix = product(&root, &transposed);
            (0..n).for_each(|i| matrix[i][i] += 0.1);
            let identity = product(&matrix, &inverse(&matrix).expect("positive definite"));
            for (row, values) in identity.iter().enumerate() {
                for (column, value) in values.iter().enumerate() {
                    let expected = f64::from(u8::from(row == column));
                    assert!((value - expected).abs() < 1e-8, "seed {seed}, n {n}: {value}");
                }
            }
        }
        assert_eq!(inverse(&[vec![1.0, 1.0], vec![1.0, 1.0]]), None);
    }
}
