
int model_simulate(const model_state *state{u_of_run}, int n, int n_first, model_real y[])
{
    if (n_first < N_FIRST_OUTPUTS || n_first >= n) {
        return MODEL_BAD_SIZE;
    }
    if (!are_finite(y, n_first * MODEL_N_OUTPUTS){check_u_of_run}) {
        return MODEL_NOT_FINITE;
    }
    for (int k = n_first; k < n; k++) {
        real x[MODEL_N_FEATURES];
        for (int i = 0; i < MODEL_N_FEATURES; i++) {
            int row = MAX(k - FEATURE_LAG[i], 0);
            int signal = FEATURE_SIGNAL[i];
            x[i] = {feature_of_run};
        }
        for (int i = 0; i < MODEL_N_TARGETS; i++) {
            part v = view(state, i);
            real before = IS_CHANGE ? y[(k - 1) * MODEL_N_OUTPUTS + v.output] : R(0.0);
            real value = mean_of(&v, x) + before;
            y[k * MODEL_N_OUTPUTS + v.output] = clip(value, v.lowest, v.highest);
        }
        if (!are_finite(y + k * MODEL_N_OUTPUTS, MODEL_N_OUTPUTS)) {
            return MODEL_DIVERGED;
        }
    }
    return MODEL_OK;
}
