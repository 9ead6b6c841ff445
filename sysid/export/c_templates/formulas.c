/* Formulas of kernels, criteria and insertion rules. The file of a model gets those that it uses.
 * Each begins with a line "FORMULA name: needed formulas".
 */

/* FORMULA squared_distance */
/* r^2 = sum_d ((a_d - b_d) / length scale_d)^2 */
static real squared_distance(const real *inverse_scales, const real *a, const real *b, int d)
{
    real total = 0;
    for (int i = 0; i < d; i++) {
        real difference = (a[i] - b[i]) * inverse_scales[i];
        total += difference * difference;
    }
    return total;
}

/* FORMULA squared_exponential: squared_distance */
/* variance exp(-r^2 / 2); theta = variance, inverse length scales */
static real squared_exponential(const real *theta, const real *a, const real *b, int d)
{
    return theta[0] * EXP(R(-0.5) * squared_distance(theta + 1, a, b, d));
}

/* FORMULA matern_32: squared_distance */
/* variance (1 + a) exp(-a), a = sqrt(3) r; theta = variance, inverse length scales */
static real matern_32(const real *theta, const real *a, const real *b, int d)
{
    real scaled = SQRT(R(3.0) * squared_distance(theta + 1, a, b, d));
    return theta[0] * (R(1.0) + scaled) * EXP(-scaled);
}

/* FORMULA matern_52: squared_distance */
/* variance (1 + a + a^2 / 3) exp(-a), a = sqrt(5) r; theta = variance, inverse length scales */
static real matern_52(const real *theta, const real *a, const real *b, int d)
{
    real scaled = SQRT(R(5.0) * squared_distance(theta + 1, a, b, d));
    return theta[0] * (R(1.0) + scaled + scaled * scaled / R(3.0)) * EXP(-scaled);
}

/* FORMULA linear */
/* offset variance + sum_d weight variance_d a_d b_d; theta = these variances */
static real linear(const real *theta, const real *a, const real *b, int d)
{
    real total = theta[0];
    for (int i = 0; i < d; i++) {
        total += theta[1 + i] * b[i] * a[i];
    }
    return total;
}

/* FORMULA latent_part */
/* v - noise variance, but at least what rounding may leave of it */
static real latent_part(real variance, real noise)
{
    return MAX(variance - noise, R(1e-16) * variance);
}

/* FORMULA negative_log_density */
/* -log N(residual; 0, v) = log(2 pi v) / 2 + residual^2 / (2 v) */
static real negative_log_density(real residual, real variance, real noise)
{
    (void)noise;
    return R(0.5) * LOG(R(6.283185307179586) * variance)
        + R(0.5) * residual * residual / variance;
}

/* FORMULA predictive_entropy: latent_part */
/* log(v - noise variance) / 2 */
static real predictive_entropy(real residual, real variance, real noise)
{
    (void)residual;
    return R(0.5) * LOG(latent_part(variance, noise));
}

/* FORMULA prior_entropy */
/* log(v) / 2 */
static real prior_entropy(real residual, real variance, real noise)
{
    (void)residual;
    (void)noise;
    return R(0.5) * LOG(variance);
}

/* FORMULA mean_relevance */
/* (r (v - noise variance) / v)^2 */
static real mean_relevance(real residual, real variance, real noise)
{
    real change = residual * (variance - noise) / variance;
    return change * change;
}

/* FORMULA gain_of_entropy */
/* log(v / noise variance) / 2, the information of the point on the function */
static real gain_of_entropy(real residual, real variance, real noise)
{
    (void)residual;
    return R(0.5) * LOG(MAX(variance / noise, R(1.0)));
}

/* FORMULA gain_of_density */
/* -log p(y_i | y without i), less the smallest value that it can have */
static real gain_of_density(real residual, real variance, real noise)
{
    return R(0.5) * LOG(MAX(variance / noise, R(1.0)))
        + R(0.5) * residual * residual / variance;
}

/* FORMULA accept_by_entropy: latent_part */
/* v - noise variance */
static real accept_by_entropy(real residual, real variance, real noise)
{
    (void)residual;
    return latent_part(variance, noise);
}

/* FORMULA accept_by_error */
/* r^2 */
static real accept_by_error(real residual, real variance, real noise)
{
    (void)variance;
    (void)noise;
    return residual * residual;
}

/* FORMULA always */
static int always(real error, real variance, real novelty, const real *thresholds)
{
    (void)error;
    (void)variance;
    (void)novelty;
    (void)thresholds;
    return 1;
}

/* FORMULA variance_threshold */
static int variance_threshold(real error, real variance, real novelty, const real *thresholds)
{
    (void)error;
    (void)novelty;
    return variance > thresholds[0];
}

/* FORMULA error_threshold */
static int error_threshold(real error, real variance, real novelty, const real *thresholds)
{
    (void)variance;
    (void)novelty;
    return ABS(error) >= thresholds[0];
}

/* FORMULA either_threshold */
static int either_threshold(real error, real variance, real novelty, const real *thresholds)
{
    (void)novelty;
    return variance > thresholds[0] || ABS(error) >= thresholds[1];
}

/* FORMULA novelty_threshold */
static int novelty_threshold(real error, real variance, real novelty, const real *thresholds)
{
    (void)error;
    (void)variance;
    return novelty > thresholds[0];
}
