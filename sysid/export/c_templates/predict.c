/* One output of the model: its numbers, and where they lie.
 *
 * The stored points carry hidden values, whose whitened posterior is N(b, M'M). U is the Cholesky
 * factor of the points' covariance, U'U = K + diagonal I. With theta the coefficients of the
 * linear part, theta = C w, the coordinates of b and M are w, then those of the points by age. If
 * only stored samples were learned, M is empty, and the posterior is that of the points' targets.
 */
typedef struct {
    int output;           /* its number among the outputs */
    int n_point_features; /* d, features of the kernel; those of the linear part follow them */
    int n_linear;         /* p_l, coefficients of the linear part */
    int capacity;         /* points for which there is room */
    int every_sample;     /* whether every sample was learned, so that there is an M */
    int has_matrix;       /* whether the coordinates are A (x - offset), else (x - offset) / scale */
    const real *offset;   /* (p) of the features */
    const real *map;      /* (p) scale, or (q, p) matrix A */
    const real *slopes;   /* (p) of the mean function */
    real intercept;       /* of the mean function */
    real lowest;          /* limits of the output in free run */
    real highest;
    real band_factor;     /* calibrated over predicted width of the band of one step */
    real (*covariance)(const real *theta, const real *a, const real *b);
    void (*covariances)(const real *theta, const real *points, int n, const real *b, real *out);
    STORED model_numbers *now; /* numbers that change while the model learns */
    STORED real *theta;        /* parameters of the kernel */
    STORED real *linear_root;  /* (p_l, p_l) C', upper triangular, without its zeros */
    STORED real *points;       /* (n, d) by slot */
    STORED model_index *order; /* (n) slot of each point by age */
    STORED real *pivots;       /* (n) 1 / diag(U) */
    STORED real *whitened;     /* (p_l + n) b */
    STORED real *root;         /* M; see `row_of_root` */
    {members}
} part;

static int n_points(const part *v)
{
    return (int)v->now->n_stored;
}

/* Row i of U from its diagonal on. */
static STORED real *row_of_upper(const part *v, int i)
{
    {row_of_upper}
}

/* Row i of M from its diagonal on; the entry before it belongs to the row, too. */
static STORED real *row_of_root(const part *v, int i)
{
    int size = v->n_linear + v->capacity + MODEL_LEARNS;
    return v->root + (i * (size + 1) - i * (i - 1) / 2) + 1;
}

static real dot(const real *restrict x, const real *restrict y, int n)
{
    real a = 0;
    real b = 0;
    real c = 0;
    real d = 0;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        a += x[i] * y[i];
        b += x[i + 1] * y[i + 1];
        c += x[i + 2] * y[i + 2];
        d += x[i + 3] * y[i + 3];
    }
    for (; i < n; i++) {
        a += x[i] * y[i];
    }
    return (a + b) + (c + d);
}

/* Solve U'x = z in place, four unknowns at a time. */
static void substitute(const part *v, int n, real *restrict z)
{
    int j = 0;
    for (; j + 4 <= n; j += 4) {
        const real *restrict a = row_of_upper(v, j);
        const real *restrict b = row_of_upper(v, j + 1);
        const real *restrict c = row_of_upper(v, j + 2);
        const real *restrict d = row_of_upper(v, j + 3);
        real x0 = z[j] * v->pivots[j];
        real x1 = (z[j + 1] - x0 * a[1]) * v->pivots[j + 1];
        real x2 = (z[j + 2] - x0 * a[2] - x1 * b[1]) * v->pivots[j + 2];
        real x3 = (z[j + 3] - x0 * a[3] - x1 * b[2] - x2 * c[1]) * v->pivots[j + 3];
        z[j] = x0;
        z[j + 1] = x1;
        z[j + 2] = x2;
        z[j + 3] = x3;
        for (int i = 4; i < n - j; i++) {
            z[j + i] -= (x0 * a[i] + x1 * b[i - 1]) + (x2 * c[i - 2] + x3 * d[i - 3]);
        }
    }
    for (; j < n; j++) {
        const real *row = row_of_upper(v, j);
        z[j] *= v->pivots[j];
        for (int i = 1; i < n - j; i++) {
            z[j + i] -= z[j] * row[i];
        }
    }
}

/* Coordinates z (q) of a regressor x (p). */
static void transform(const part *v, const real *x, real *z)
{
    int q = v->n_point_features + v->n_linear;
    if (!v->has_matrix) {
        for (int i = 0; i < q; i++) {
            z[i] = (x[i] - v->offset[i]) / v->map[i];
        }
        return;
    }
    for (int i = 0; i < q; i++) {
        real total = 0;
        for (int d = 0; d < MODEL_N_FEATURES; d++) {
            total += (x[d] - v->offset[d]) * v->map[i * MODEL_N_FEATURES + d];
        }
        z[i] = total;
    }
}

/* Mean function m(x) of a regressor x (p). */
static real prior_mean(const part *v, const real *x)
{
    real total = 0;
    for (int i = 0; i < MODEL_N_FEATURES; i++) {
        total += x[i] * v->slopes[i];
    }
    return v->intercept + total;
}

/* Compute phi = (C'phi_l, U'^-1 k) of the coordinates z of a sample.
 *
 * by_slot gets the covariances k with the points, *prior the prior variance k(x, x), and
 * *residual what the points cannot represent of it, k(x, x) - |U'^-1 k|^2, which rounding may
 * have made slightly negative. Returns the posterior mean phi'b.
 */
static real project(const part *v, const real *z, real *by_slot, real *phi, real *prior,
                    real *residual)
{
    int n = n_points(v);
    int d = v->n_point_features;
    const real *lags = z + d;
    const real *row = v->linear_root;
    real *of_points = phi + v->n_linear;
    *prior = v->covariance(v->theta, z, z);
    v->covariances(v->theta, v->points, n, z, by_slot);
    for (int j = 0; j < n; j++) {
        of_points[j] = by_slot[v->order[j]];
    }
    substitute(v, n, of_points);
    for (int i = 0; i < v->n_linear; i++) {
        phi[i] = dot(row, lags + i, v->n_linear - i);
        row += v->n_linear - i;
    }
    *residual = *prior - dot(of_points, of_points, n);
    return dot(phi, v->whitened, v->n_linear + n);
}

/* Compute image = M phi, and return its squared length. */
static real project_root(const part *v, int n, const real *phi, real *image)
{
    int j = 0;
#if MODEL_MAX_SIZE > 8
    for (; j + 4 <= n; j += 4) { /* four rows at a time */
        const real *a = row_of_root(v, j);
        const real *b = row_of_root(v, j + 1);
        const real *c = row_of_root(v, j + 2);
        const real *d = row_of_root(v, j + 3);
        const real *x = phi + j;
        real y0 = a[0] * x[0] + a[1] * x[1] + a[2] * x[2] + a[3] * x[3];
        real y1 = b[0] * x[1] + b[1] * x[2] + b[2] * x[3];
        real y2 = c[0] * x[2] + c[1] * x[3];
        real y3 = d[0] * x[3];
        for (int i = 4; i < n - j; i++) {
            y0 += a[i] * x[i];
            y1 += b[i - 1] * x[i];
            y2 += c[i - 2] * x[i];
            y3 += d[i - 3] * x[i];
        }
        image[j] = y0;
        image[j + 1] = y1;
        image[j + 2] = y2;
        image[j + 3] = y3;
    }
#endif
    for (; j < n; j++) {
        image[j] = dot(row_of_root(v, j), phi + j, n - j);
    }
    return dot(image, image, n);
}

/* Mean and latent variance of the target of a regressor x (p). */
static void moments(const part *v, const real *x, real *mean, real *variance)
{
    real z[MODEL_MAX_COORDINATES];
    real by_slot[MODEL_MAX_POINTS];
    real phi[MODEL_MAX_SIZE];
    real image[MODEL_MAX_SIZE];
    real prior;
    real residual;
    transform(v, x, z);
    *mean = project(v, z, by_slot, phi, &prior, &residual) + prior_mean(v, x);
    *variance = MAX(residual, R(0.0));
    if (v->every_sample) {
        *variance += project_root(v, v->n_linear + n_points(v), phi, image);
    }
}

/* Prediction of a target, or of its output if `before`, the output of one sample earlier, is added.
 *
 * The band of a measurement is calibrated: with the factor c, std^2 = max(c^2 (v + s) - s, 0) + s.
 */
static model_prediction predict_one(const part *v, const real *x, real before)
{
    model_prediction result;
    real noise = v->now->noise_variance;
    real calibrated;
    moments(v, x, &result.mean, &result.variance);
    result.mean += before;
    calibrated = v->band_factor * v->band_factor * (result.variance + noise) - noise;
    result.std = SQRT(MAX(calibrated, R(0.0)) + noise);
    result.low = result.mean - R(Z_95) * result.std;
    result.high = result.mean + R(Z_95) * result.std;
    return result;
}

/* Mean of the target of a regressor x (p). */
static real mean_of(const part *v, const real *x)
{
    real z[MODEL_MAX_COORDINATES];
    real by_slot[MODEL_MAX_POINTS];
    real phi[MODEL_MAX_SIZE];
    real prior;
    real residual;
    transform(v, x, z);
    return project(v, z, by_slot, phi, &prior, &residual) + prior_mean(v, x);
}

static real clip(real value, real lowest, real highest)
{
    return value < lowest ? lowest : value > highest ? highest : value;
}

/* Whether n values are finite, and so small that their squares are. */
static int are_finite(const real *values, int n)
{
    for (int i = 0; i < n; i++) {
        if (!(ABS(values[i]) < R(MAX_MAGNITUDE))) {
            return 0;
        }
    }
    return 1;
}
