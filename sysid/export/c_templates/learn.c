/* Learning, as the toolbox does it (sysid/gp/dictionary.py), in the same order.
 *
 * Beside U there is F = U'^-1, lower triangular, from which q = diag((K + diagonal I)^-1) and the
 * weights a = U^-1 b follow. Both factors share one array: row i of `triangles` has i + 1 entries
 * of F, then those of U from the diagonal on.
 */
#define STRIDE(v) ((v)->capacity + 2)
#define PROBE_INTERVAL 50u       /* points that enter between two measurements of the drift */
#define RENEWAL_INTERVAL 500u    /* points that enter until the factors are computed again */
#define SCORE_TIE R(1e-9)        /* relative difference of two scores that are equal */
#define SCALE_INTERVAL R(100.0)  /* samples between two updates of the scale */
#define MAX_SCALE_MEMORY R(1000.0)
#define MAX_STANDARDISED_SQUARE R(9.0)
#define EXPECTED_CLIPPED_SQUARE R(0.9950) /* E[min(z^2, 9)] of a standard normal z */
#define REST_INPUT_CHANGE R(1e-9)
#define REST_TARGET_CHANGE R(1e-6)
#define OUTLIER_LEVEL_DECAY R(0.2)
#define MIN_DIAGONAL_RATIO R(1e-13)
#define DUPLICATE_CORRELATION_GAP R(2e-10)
#define DUPLICATE_VARIANCE_GAP R(2e-5)

enum { FACTORS_GOOD, RENEWAL_DUE, PROBE_DUE };
enum { ACCEPT_ALL, LEAVE_ONE_OUT, IN_SAMPLE };

static real *row_of_lower(const part *v, int i)
{
    return v->triangles + i * STRIDE(v);
}

/* out += factor row */
static void add_multiple(real *restrict out, real factor, const real *restrict row, int n)
{
    for (int j = 0; j < n; j++) {
        out[j] += factor * row[j];
    }
}

/* Solve Ux = z in place, four unknowns at a time. */
static void substitute_back(const part *v, int n, real *z)
{
    int n_grouped = n - n % 4; /* rows in complete groups of four */
    for (int j = n - 1; j >= n_grouped; j--) {
        const real *row = row_of_upper(v, j);
        for (int i = j + 1; i < n; i++) {
            z[j] -= row[i - j] * z[i];
        }
        z[j] *= v->pivots[j];
    }
    for (int j = n_grouped - 4; j >= 0; j -= 4) {
        const real *a = row_of_upper(v, j);
        const real *b = row_of_upper(v, j + 1);
        const real *c = row_of_upper(v, j + 2);
        const real *d = row_of_upper(v, j + 3);
        real y0 = 0;
        real y1 = 0;
        real y2 = 0;
        real y3 = 0;
        for (int i = 4; i < n - j; i++) {
            y0 += a[i] * z[j + i];
            y1 += b[i - 1] * z[j + i];
            y2 += c[i - 2] * z[j + i];
            y3 += d[i - 3] * z[j + i];
        }
        z[j + 3] = (z[j + 3] - y3) * v->pivots[j + 3];
        z[j + 2] = (z[j + 2] - y2 - c[1] * z[j + 3]) * v->pivots[j + 2];
        z[j + 1] = (z[j + 1] - y1 - b[2] * z[j + 3] - b[1] * z[j + 2]) * v->pivots[j + 1];
        z[j] = (z[j] - y0 - a[3] * z[j + 3] - a[2] * z[j + 2] - a[1] * z[j + 1]) * v->pivots[j];
    }
}

/* Solve Ua = b for the weights a. */
static void solve_weights(const part *v, int n)
{
    memcpy(v->weights, v->whitened + v->n_linear, (size_t)n * sizeof(real));
    substitute_back(v, n, v->weights);
}

/* q_j = sum_i F_ij^2 and a = F'b */
static void compute_precision_and_weights(const part *v, int n)
{
    const real *b = v->whitened + v->n_linear;
    for (int j = 0; j < n; j++) {
        v->precision[j] = 0;
        v->weights[j] = 0;
    }
    for (int i = 0; i < n; i++) {
        const real *restrict row = row_of_lower(v, i);
        real *restrict precision = v->precision;
        real *restrict weights = v->weights;
        for (int j = 0; j <= i; j++) {
            precision[j] += row[j] * row[j];
            weights[j] += b[i] * row[j];
        }
    }
    v->now->minimum_is_stale = 1;
}

/* Append a point: U gets the column (phi, sqrt(s)), F the row (-w, 1)/sqrt(s) with Uw = phi, and
 * b the entry error/sqrt(s).
 */
static void append(const part *v, int n, const real *phi, const real *w, real error, real s)
{
    real root = SQRT(s);
    real *row = row_of_lower(v, n);
    for (int j = 0; j < n; j++) {
        v->triangles[j * STRIDE(v) + n + 1] = phi[j];
        row[j] = -w[j] / root;
    }
    row[n + 1] = root;
    row[n] = R(1.0) / root;
    v->pivots[n] = row[n];
    v->whitened[v->n_linear + n] = error / root;
}

/* Rotate two rows: out, y = c x - s y, s x + c y, entry by entry. */
static void rotate(const real *x, real *y, real *out, real c, real s, int n)
{
    for (int j = 0; j < n; j++) {
        real f = x[j];
        real g = y[j];
        out[j] = c * f - s * g;
        y[j] = s * f + c * g;
    }
}

/* Marginalise coordinate r of n in M, by the rotations that U has undergone. */
static void delete_from_root(const part *v, int n, int r, const real *cosines, const real *sines)
{
    for (int k = 0; k < n; k++) {
        real *row = row_of_root(v, k); /* row[i - k] is the entry of column i */
        real carried = k <= r ? row[r - k] : R(0.0);
        for (int i = MAX(r + 1, k); i < n; i++) {
            real entry = row[i - k];
            row[i - 1 - k] = cosines[i] * entry - sines[i] * carried;
            carried = sines[i] * entry + cosines[i] * carried;
        }
    }
    /* Each younger column has one entry too many, below the diagonal. */
    for (int j = r; j < n - 1; j++) {
        real *row = row_of_root(v, j);
        real *below = row_of_root(v, j + 1) - 1;
        real length = SQRT(row[0] * row[0] + below[0] * below[0]);
        rotate(row, below, row, row[0] / length, -below[0] / length, n - 1 - j);
    }
}

/* Remove the r-th oldest of n points from U, F, b and M by Givens rotations. */
static void delete_point(const part *v, int n, int r)
{
    real carried[MODEL_MAX_POINTS + 2];
    real cosines[MODEL_MAX_SIZE];
    real sines[MODEL_MAX_SIZE];
    real *b = v->whitened + v->n_linear;
    real b_carried = b[r];
    real pivot;
    for (int i = 0; i < r; i++) {
        real *row = row_of_lower(v, i);
        memmove(row + r + 1, row + r + 2, (size_t)(n - 1 - r) * sizeof(real));
    }
    memcpy(carried, row_of_lower(v, r), (size_t)(n + 1) * sizeof(real));
    pivot = carried[r];
    for (int i = r + 1; i < n; i++) {
        real *row = row_of_lower(v, i);
        real *above = row_of_lower(v, i - 1);
        /* rotation of U and b */
        real length = SQRT(carried[i + 1] * carried[i + 1] + row[i + 1] * row[i + 1]);
        real c = row[i + 1] / length;
        real s = -carried[i + 1] / length;
        real b_i = b[i];
        real c_of_inverse;
        real s_of_inverse;
        cosines[v->n_linear + i] = c;
        sines[v->n_linear + i] = s;
        v->pivots[i - 1] = R(1.0) / length;
        b[i - 1] = c * b_i - s * b_carried;
        b_carried = s * b_i + c * b_carried;
        /* rotation of F */
        length = SQRT(pivot * pivot + row[r] * row[r]);
        c_of_inverse = pivot / length;
        s_of_inverse = row[r] / length;
        pivot = length;
        carried[i] = 0;
        /* columns of F before r stay where they are, the later ones move to the left */
        rotate(row, carried, above, c_of_inverse, s_of_inverse, r);
        rotate(row + r + 1, carried + r + 1, above + r, c_of_inverse, s_of_inverse, i - r);
        /* the columns of U move to the left */
        rotate(row + i + 1, carried + i + 1, above + i, c, s, n - i);
    }
    if (v->every_sample) {
        delete_from_root(v, v->n_linear + n, v->n_linear + r, cosines, sines);
    }
}

/* Update b and M by a sample with image = M phi, this noise variance and this error (Carlson,
 * 1973). With s_j = s_(j+1) + image_j^2, and g the sum of the rows done, each times its image:
 *     M_j <- sqrt(s_(j+1)/s_j) M_j - image_j/sqrt(s_(j+1) s_j) g,    b += g error/s_0
 */
static void condition(const part *v, int n, const real *image, real noise, real error)
{
    real gain[MODEL_MAX_SIZE];
    real s = noise;
    for (int j = 0; j < n; j++) {
        gain[j] = 0;
    }
    for (int j = n - 1; j >= 0; j -= 2) { /* two rows at a time */
        real *restrict row = row_of_root(v, j);
        real *restrict next = row_of_root(v, MAX(j - 1, 0));
        real *restrict of_row = gain + j;
        real a = image[j];
        real b = j > 0 ? image[j - 1] : R(0.0);
        real s_of_row = s + a * a;
        real s_of_next = s_of_row + b * b;
        real scale = SQRT(s / s_of_row);
        real fraction = a / SQRT(s * s_of_row);
        real scale_of_next = SQRT(s_of_row / s_of_next);
        real fraction_of_next = b / SQRT(s_of_row * s_of_next);
        s = s_of_next;
        if (j == 0) {
            real entry;
            for (int i = 0; i < n; i++) {
                entry = row[i];
                row[i] = scale * entry - fraction * of_row[i];
                of_row[i] += a * entry;
            }
            break;
        }
        gain[j - 1] = b * next[0];
        next[0] = scale_of_next * next[0];
        next += 1; /* from column j on, as the row */
        for (int i = 0; i < n - j; i++) {
            real entry = row[i];
            real entry_of_next = next[i];
            real g = of_row[i];
            row[i] = scale * entry - fraction * g;
            g += a * entry;
            next[i] = scale_of_next * entry_of_next - fraction_of_next * g;
            of_row[i] = g + b * entry_of_next;
        }
    }
    add_multiple(v->whitened, error / s, gain, n);
}

/* Give a sample a coordinate of its own, N(0, 1), and learn it. Returns b_n sqrt(s), which the
 * criteria use as the error of the sample.
 */
static real append_and_condition(const part *v, int n, real *phi, const real *w, real residual,
                                 real s, real error)
{
    real image[MODEL_MAX_SIZE];
    int own = v->n_linear + n;
    real *row = row_of_root(v, own);
    real noise;
    append(v, n, phi + v->n_linear, w, R(0.0), s);
    for (int j = 0; j < own; j++) {
        row_of_root(v, j)[own - j] = 0;
    }
    row[-1] = 0;
    row[0] = 1;
    phi[own] = residual / SQRT(s);
    project_root(v, own + 1, phi, image);
    noise = v->now->noise_variance + MAX(residual - phi[own] * phi[own], R(0.0));
    condition(v, own + 1, image, noise, error);
    solve_weights(v, n);
    return v->whitened[own] * SQRT(s);
}

static real smallest(const real *values, int n)
{
    real found = values[0];
    for (int i = 1; i < n; i++) {
        if (!(values[i] >= found)) {
            found = values[i];
        }
    }
    return found;
}

/* The largest score that ties with this one. */
static real largest_tie(real score)
{
    return ABS(score) <= LARGEST ? score + SCORE_TIE * ABS(score) : score;
}

/* Index of the lowest of n scores; among ties the first, which belongs to the oldest point. */
static int index_of_lowest(const real *values, int n)
{
    real bound = largest_tie(smallest(values, n));
    for (int j = 0; j < n; j++) {
        if (values[j] <= bound) {
            return j;
        }
    }
    return 0;
}

/* Smallest acceptance score of the stored points, each predicted by all others (residual a/q,
 * variance 1/q) or, in sample, by the model that contains it.
 */
static real smallest_acceptance_score(const part *v, int n)
{
    real score[MODEL_MAX_POINTS];
    real noise = v->now->diagonal;
    if (!v->now->minimum_is_stale && !v->every_sample) {
        return v->now->minimum;
    }
    score[0] = 0; /* n is at least 1 */
    for (int j = 0; j < n; j++) {
        real variance = R(1.0) / v->precision[j];
        real residual = v->weights[j] * variance;
        if (v->reference == IN_SAMPLE) {
            variance = R(2.0) * noise - noise * noise * v->precision[j];
            residual = noise * v->weights[j];
        }
        score[j] = v->acceptance(residual, variance, noise);
    }
    v->now->minimum = smallest(score, n);
    v->now->minimum_is_stale = 0;
    return v->now->minimum;
}

static int is_accepted(const part *v, int n, real error, real s, model_report *report)
{
    if (v->reference == ACCEPT_ALL) {
        return 1;
    }
    report->acceptance_score = v->acceptance(error, s, v->now->diagonal);
    report->acceptance_minimum = smallest_acceptance_score(v, n);
    return report->acceptance_score > largest_tie(report->acceptance_minimum);
}

/* Reduction scores of the stored points, by age, with the candidate in the set: q becomes
 * q + w^2/s, a becomes a - w error/s. If stored samples alone are learned, age weighs them.
 */
static void reduction_scores(const part *v, int n, const real *w, real error, real s, real *score)
{
    real inverse = R(1.0) / s;
    score[0] = 0; /* n is at least 1 */
    for (int j = 0; j < n; j++) {
        real variance = R(1.0) / (v->precision[j] + w[j] * w[j] * inverse);
        real residual = (v->weights[j] - w[j] * (error * inverse)) * variance;
        score[j] = v->reduction(residual, variance, v->now->diagonal);
        if (v->age_memory > R(0.0)) {
            real age = (real)(v->now->n_seen - v->number[v->order[j]]);
            score[j] *= EXP(-age / v->age_memory);
        }
    }
}

/* Whether the point of by_slot equals one of n stored points in all features. */
static int is_near_duplicate(const part *v, int n, int slot, real prior, const real *by_slot)
{
    int d = v->n_point_features;
    for (int i = 0; i < n; i++) {
        const real *other = v->points + i * d;
        real k = by_slot[i];
        real prior_of_other;
        if (i == slot || !(k > R(0.0))) {
            continue;
        }
        prior_of_other = v->covariance(v->theta, other, other);
        if (k * k > prior * prior_of_other * (R(1.0) - DUPLICATE_CORRELATION_GAP)
            && ABS(prior - prior_of_other) <= DUPLICATE_VARIANCE_GAP * prior) {
            return 1;
        }
    }
    return 0;
}

/* Store a point that `append` has added, in place of the r-th oldest of n (none if r equals n). */
static int enter(const part *v, int n, int r, const real *z, real target, real prior,
                 const real *by_slot)
{
    int slot = v->order[r];
    if (r < n) {
        delete_point(v, n + 1, r);
        for (int j = r; j < n - 1; j++) {
            v->order[j] = v->order[j + 1];
        }
        v->order[n - 1] = (model_index)slot;
    } else {
        n += 1;
    }
    compute_precision_and_weights(v, n);
    memcpy(v->points + slot * v->n_point_features, z,
           (size_t)v->n_point_features * sizeof(real));
    v->targets[slot] = target;
    v->number[slot] = v->now->n_seen - 1;
    v->now->n_duplicates += (uint32_t)is_near_duplicate(v, n, slot, prior, by_slot);
    v->now->n_stored = (uint32_t)n;
    v->now->n_entries += 1;
    return slot;
}

/* Store a candidate if there is room, or if it is accepted: then it replaces the point of lowest
 * reduction score.
 */
static void propose(const part *v, int n, const real *z, real target, real prior, real residual,
                    real error, real *phi, const real *by_slot, model_report *report)
{
    real w[MODEL_MAX_POINTS];
    real s = MAX(residual, R(0.0)) + v->now->diagonal;
    int r = n;
    memcpy(w, phi + v->n_linear, (size_t)n * sizeof(real));
    substitute_back(v, n, w);
    if (v->every_sample) {
        error = append_and_condition(v, n, phi, w, residual, s, error);
    }
    if (n == v->capacity) {
        real score[MODEL_MAX_POINTS];
        if (!is_accepted(v, n, error, s, report)) {
            return;
        }
        reduction_scores(v, n, w, error, s, score);
        r = index_of_lowest(score, n);
        report->reduction_score = score[r];
    }
    if (!v->every_sample) {
        append(v, n, phi, w, error, s);
    }
    report->accepted = 1;
    report->slot = enter(v, n, r, z, target, prior, by_slot);
    if (r < n) {
        report->removed = report->slot;
    }
}

/* Whether a sample is an outlier, by its squared standardised error. The level of outliers rises
 * by 1 with each sample beyond the gate and falls with each other one. At `gate_opens_after` the
 * gate is open: every sample is learned, until one passes the test.
 */
static int is_outlier(const part *v, real square)
{
    real level = v->now->outlier_level;
    int is_open = level >= v->gate_opens_after;
    if (!(v->gate > R(0.0))) {
        return 0;
    }
    if (!(square > v->gate * v->gate)) {
        v->now->outlier_level = is_open ? R(0.0) : MAX(level - OUTLIER_LEVEL_DECAY, R(0.0));
        return 0;
    }
    v->now->outlier_level = level + R(1.0);
    v->now->n_outliers += !is_open;
    return !is_open;
}

/* Whether a sample repeats the one before: then nothing moves, and its error tells nothing. */
static int repeats(const part *v, const real *z, real target, real variance)
{
    int q = v->n_point_features + v->n_linear;
    if (!v->now->has_last_sample) {
        return 0;
    }
    for (int d = 0; d < q; d++) {
        real change = ABS(z[d] - v->last_sample[d]);
        if (!(change <= REST_INPUT_CHANGE * MAX(ABS(z[d]), ABS(v->last_sample[d])))) {
            return 0;
        }
    }
    return ABS(target - v->last_sample[q]) <= REST_TARGET_CHANGE * SQRT(variance);
}

/* Add a squared standardised error to the sum for the scale, unless the plant is at rest. */
static void sum_square(const part *v, const real *z, real target, real square, real variance)
{
    int q = v->n_point_features + v->n_linear;
    if (!repeats(v, z, target, variance)) {
        v->now->sum_of_squares += MIN(square, MAX_STANDARDISED_SQUARE);
        v->now->n_squares += R(1.0);
    }
    memcpy(v->last_sample, z, (size_t)q * sizeof(real));
    v->last_sample[q] = target;
    v->now->has_last_sample = 1;
}

/* Largest drift of the factors that needs no repair; it grows with a bound on the condition. */
static real drift_tolerance(const part *v)
{
    int d = v->n_point_features;
    real point[MODEL_MAX_COORDINATES];
    real largest = 0;
    for (int ones = 0; ones < 2; ones++) {
        for (int i = 0; i < d; i++) {
            point[i] = (real)ones;
        }
        largest = MAX(largest, v->covariance(v->theta, point, point));
    }
    for (int j = 0; j < n_points(v); j++) {
        const real *stored = v->points + j * d;
        largest = MAX(largest, v->covariance(v->theta, stored, stored));
    }
    return R(1e-10) + R(10.0) * EPSILON * (real)v->capacity * largest / v->now->diagonal;
}

/* How far the factors are from the covariance of the points; 0 if they are exact. It is
 * max(|z - Ky F'F z|, |z - F U'z|) over all entries, with fixed signs z = (1, -1, -1, 1, ...).
 */
static real drift(const part *v, int n)
{
    real z[MODEL_MAX_POINTS];
    real of_upper[MODEL_MAX_POINTS];
    real of_inverse[MODEL_MAX_POINTS];
    int d = v->n_point_features;
    real largest = 0;
    for (int j = 0; j < n; j++) {
        z[j] = (j * (j + 1) / 2) % 2 ? R(-1.0) : R(1.0);
        of_upper[j] = 0;
        of_inverse[j] = 0;
    }
    for (int i = 0; i < n; i++) {
        const real *row = row_of_lower(v, i);
        add_multiple(of_inverse, dot(row, z, i + 1), row, i + 1);
        add_multiple(of_upper + i, z[i], row_of_upper(v, i), n - i);
    }
    for (int i = 0; i < n; i++) {
        const real *point = v->points + v->order[i] * d;
        real image = v->now->diagonal * of_inverse[i];
        real by_inverse;
        real by_factors = ABS(z[i] - dot(row_of_lower(v, i), of_upper, i + 1));
        for (int j = 0; j < n; j++) {
            image += v->covariance(v->theta, v->points + v->order[j] * d, point) * of_inverse[j];
        }
        by_inverse = ABS(z[i] - image);
        largest = MAX(largest, MAX(by_inverse, by_factors));
        if (!(by_inverse <= largest && by_factors <= largest)) {
            return R(MAX_MAGNITUDE); /* one of them is nan */
        }
    }
    return largest;
}

/* F = U'^-1, row by row, and 1 / diag(U) */
static void invert_upper(const part *v, int n)
{
    for (int i = 0; i < n; i++) {
        real *row = row_of_lower(v, i);
        v->pivots[i] = R(1.0) / row_of_upper(v, i)[0];
        for (int j = 0; j < i; j++) {
            row[j] = 0;
        }
        for (int k = 0; k < i; k++) {
            add_multiple(row, -row_of_upper(v, k)[i - k], row_of_lower(v, k), k + 1);
        }
        for (int j = 0; j < i; j++) {
            row[j] *= v->pivots[i];
        }
        row[i] = v->pivots[i];
    }
}

/* Compute U'U = Ky and F = U'^-1 from scratch. A pivot, at least the diagonal in exact
 * arithmetic, is not below it.
 */
static void factorise(const part *v, int n)
{
    int d = v->n_point_features;
    for (int i = 0; i < n; i++) {
        const real *point = v->points + v->order[i] * d;
        real *row = row_of_upper(v, i);
        for (int j = i; j < n; j++) {
            row[j - i] = v->covariance(v->theta, v->points + v->order[j] * d, point);
        }
        row[0] += v->now->diagonal;
    }
    for (int i = 0; i < n; i++) {
        real *row = row_of_upper(v, i);
        row[0] = SQRT(MAX(row[0], v->now->diagonal));
        for (int j = 1; j < n - i; j++) {
            row[j] /= row[0];
        }
        for (int k = i + 1; k < n; k++) {
            add_multiple(row_of_upper(v, k), -row[k - i], row + (k - i), n - k);
        }
    }
    invert_upper(v, n);
    if (!v->every_sample) {
        for (int j = 0; j < n; j++) {
            v->whitened[j] = v->targets[v->order[j]];
        }
        substitute(v, n, v->whitened);
    }
    compute_precision_and_weights(v, n);
}

/* Compute the factors from scratch if this is due or if they have drifted. */
static void check_factors(const part *v)
{
    real tolerance = v->now->tolerance;
    real found = drift(v, n_points(v));
    int is_due = v->now->factor_status == RENEWAL_DUE;
    v->now->factor_status = FACTORS_GOOD;
    if (!is_due && found <= tolerance) {
        return;
    }
    v->now->tolerance = drift_tolerance(v);
    if (found > MAX(tolerance, v->now->tolerance)) {
        v->now->n_refactorisations += 1;
    } else {
        v->now->n_renewals += 1;
    }
    factorise(v, n_points(v));
}

/* Update the scale of all variances, a running mean of min(e^2/s, 9) over at most 1000 samples.
 * The predicted means stay. Where the variances do not follow the errors, the gate does.
 */
static void rescale(const part *v)
{
    model_numbers *now = v->now;
    int n = n_points(v);
    int n_root = v->n_linear * (v->n_linear + 1) / 2;
    real mean_square = now->sum_of_squares / EXPECTED_CLIPPED_SQUARE;
    real factor = (now->scale_memory + mean_square) / (now->scale_memory + now->n_squares);
    real root = SQRT(factor);
    real inverse = R(1.0) / root;
    now->scale_memory = MIN(now->scale_memory + now->n_squares, MAX_SCALE_MEMORY);
    now->sum_of_squares = 0;
    now->n_squares = 0;
    if (!(v->every_sample && v->scales)) {
        now->error_scale *= factor;
        return;
    }
    for (int i = 0; i < v->n_variances; i++) {
        v->theta[v->variances[i]] *= factor;
    }
    for (int i = 0; i < n_root; i++) {
        v->linear_root[i] *= root;
    }
    now->noise_variance *= factor;
    now->diagonal *= factor;
    for (int i = 0; i < n; i++) {
        real *lower = row_of_lower(v, i);
        real *upper = row_of_upper(v, i);
        for (int j = 0; j <= i; j++) {
            lower[j] *= inverse;
        }
        for (int j = 0; j < n - i; j++) {
            upper[j] *= root;
        }
        v->precision[i] /= factor;
        v->pivots[i] /= root;
    }
    for (int i = 0; i < v->n_linear + n; i++) {
        v->whitened[i] /= root;
    }
    now->minimum_is_stale = 1;
    now->tolerance = drift_tolerance(v);
}

/* Whether the noise is large enough for the arithmetic at the coordinates z of a sample. */
static int has_enough_noise(const part *v, const real *z)
{
    return v->now->diagonal >= MIN_DIAGONAL_RATIO * v->covariance(v->theta, z, z);
}

/* Predict a sample with the coordinates z, then learn it: algorithm 1 of Wietzke and Graichen. */
static void learn_one(const part *v, const real *z, real measured, real offset,
                      model_report *report)
{
    real by_slot[MODEL_MAX_POINTS];
    real phi[MODEL_MAX_SIZE];
    real image[MODEL_MAX_SIZE];
    real prior;
    real residual;
    real mean;
    real latent;
    real target = measured - offset;
    real error;
    real variance;
    real square;
    int n = n_points(v);
    int size = v->n_linear + n;
    v->now->n_seen += 1;
    mean = project(v, z, by_slot, phi, &prior, &residual);
    if (residual < R(0.0)) {
        v->now->n_clipped += 1;
        residual = 0;
    }
    latent = residual;
    if (v->every_sample) {
        latent += project_root(v, size, phi, image);
    }
    error = target - mean;
    memset(report, 0, sizeof *report);
    report->mean = mean + offset;
    report->variance = latent;
    report->slot = -1;
    report->removed = -1;
    variance = (latent + v->now->noise_variance) * v->now->error_scale;
    square = error * error / variance;
    if (is_outlier(v, square)) {
        report->outlier = 1;
        report->n_points = n;
        return;
    }
    report->learned = 1;
    report->inserted = v->insertion(error, latent, residual / v->now->noise_variance,
                                    v->thresholds);
    if (v->sums_squares) {
        sum_square(v, z, target, square, variance);
    }
    if (report->inserted) {
        propose(v, n, z, target, prior, residual, error, phi, by_slot, report);
    } else if (v->every_sample) {
        condition(v, size, image, v->now->noise_variance + residual, error);
    }
    n = n_points(v);
    report->n_points = n;
    if (report->accepted) {
        uint32_t interval = MAX(RENEWAL_INTERVAL, 5u * (uint32_t)n);
        v->now->factor_status = v->now->n_entries % interval == 0          ? RENEWAL_DUE
                                : v->now->n_entries % PROBE_INTERVAL == 0 ? PROBE_DUE
                                                                          : FACTORS_GOOD;
    }
    if (v->now->factor_status != FACTORS_GOOD) {
        check_factors(v);
    }
    if (v->now->n_squares >= SCALE_INTERVAL) {
        rescale(v);
    }
}

/* Take over the exported factors: U by rows from the diagonal on, and M by rows from one entry
 * before the diagonal on. What is not in use is that of the prior.
 */
static void load_factors(const part *v, const real *upper, const real *root)
{
    int n = n_points(v);
    int size = v->n_linear + n;
    for (int i = 0; i < n; i++) {
        memcpy(row_of_upper(v, i), upper, (size_t)(n - i) * sizeof(real));
        upper += n - i;
    }
    for (int k = 0; v->every_sample && k < v->n_linear + v->capacity + 1; k++) {
        real *row = row_of_root(v, k);
        row[0] = 1;
        if (k < size) {
            memcpy(row - 1, root, (size_t)(size - k + 1) * sizeof(real));
            root += size - k + 1;
        }
    }
    for (int j = n; j < v->capacity; j++) {
        v->order[j] = (model_index)j;
    }
    invert_upper(v, n);
    compute_precision_and_weights(v, n);
    v->now->tolerance = drift_tolerance(v);
}
