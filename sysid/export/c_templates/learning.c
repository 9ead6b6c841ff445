
/* Learn a regressor with the measured target of one output, whose coordinates were checked. */
static void learn_row(part *v, const real *x, real target, model_report *report)
{
    real z[MODEL_MAX_COORDINATES];
    transform(v, x, z);
    learn_one(v, z, target, prior_mean(v, x), report);
}

/* Whether the arithmetic can learn a regressor. */
static int can_learn(const part *v, const real *x)
{
    real z[MODEL_MAX_COORDINATES];
    transform(v, x, z);
    return are_finite(z, v->n_point_features + v->n_linear) && has_enough_noise(v, z);
}

int model_update(model_state *state, int i, const model_real regressor[], model_real target,
                 model_report *report)
{
    part v;
    if (i < 0 || i >= MODEL_N_TARGETS) {
        return MODEL_BAD_SIZE;
    }
    if (!are_finite(regressor, MODEL_N_FEATURES) || !are_finite(&target, 1)) {
        return MODEL_NOT_FINITE;
    }
    v = view(state, i);
    if (!can_learn(&v, regressor)) {
        return MODEL_TOO_FAR;
    }
    learn_row(&v, regressor, target, report);
    return MODEL_OK;
}

int model_learn(model_state *state, const model_real y[]{u}{u_next}, model_prediction next[],
                model_report reports[])
{
    real x[MODEL_N_FEATURES] = {0};
    int learns = is_ready(state) && state->n_tainted == 0;
    if (!are_finite(y, MODEL_N_OUTPUTS) || !are_finite({u_argument}, MODEL_N_INPUTS)
        || !are_finite({u_next_argument}, HAS_LAG_0 ? MODEL_N_INPUTS : 0)) {
        return MODEL_NOT_FINITE;
    }
    if (is_ready(state)) {
        next_regressor(state, {u_argument}, x);
    }
    for (int i = 0; learns && i < MODEL_N_TARGETS; i++) {
        part v = view(state, i);
        if (!can_learn(&v, x)) {
            return MODEL_TOO_FAR;
        }
    }
    for (int i = 0; i < MODEL_N_TARGETS; i++) {
        part v = view(state, i);
        memset(&reports[i], 0, sizeof reports[i]);
        reports[i].slot = -1;
        reports[i].removed = -1;
        reports[i].n_points = n_points(&v);
        if (is_ready(state) && !learns) {
            moments(&v, x, &reports[i].mean, &reports[i].variance);
        }
        if (learns) {
            learn_row(&v, x, y[v.output] - output_before(state, &v), &reports[i]);
        }
    }
    return take(state, y, NULL, {u_argument}, {u_next_argument}, next);
}
