{view}

/* CRC-32 of n bytes. */
static uint32_t checksum_of(const unsigned char *bytes, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1u ? 0xedb88320u : 0u);
        }
    }
    return ~crc;
}

/* Checksum of the bytes of a state behind its version and checksum. */
static uint32_t checksum_of_state(const unsigned char *bytes)
{
    return checksum_of(bytes + CHECKED_FROM, sizeof(model_state) - CHECKED_FROM);
}

/* Features of the next sample: lags, and for lag 0 the inputs u that are applied at that sample. */
static void next_regressor(const model_state *state, const real *u, real *x)
{
    for (int i = 0; i < MODEL_N_FEATURES; i++) {
        int signal = FEATURE_SIGNAL[i];
        int lag = FEATURE_LAG[i];
        x[i] = lag ? state->past[(lag - 1) * N_SIGNALS + signal] : u[signal - MODEL_N_OUTPUTS];
    }
}

/* Output of one sample before the next one, if the change is predicted; else 0. */
static real output_before(const model_state *state, const part *v)
{
    return IS_CHANGE ? state->past[v->output] : R(0.0);
}

static int is_ready(const model_state *state)
{
    return (int)state->n_samples >= MODEL_N_LAGS;
}

static void push(model_state *state, const real *y, const real *u)
{
    memmove(state->past + N_SIGNALS, state->past,
            sizeof state->past - N_SIGNALS * sizeof(real));
    memcpy(state->past, y, MODEL_N_OUTPUTS * sizeof(real));
    for (int i = 0; i < MODEL_N_INPUTS; i++) {
        state->past[MODEL_N_OUTPUTS + i] = u[i];
    }
    if (!is_ready(state)) {
        state->n_samples += 1;
    }
    if (state->n_tainted > 0) {
        state->n_tainted -= 1;
    }
}

/* Predict the outputs of the next sample; u are its inputs, if the model has lag 0 of them. */
static int predict_next(const model_state *state, const real *u, model_prediction *next)
{
    real x[MODEL_N_FEATURES];
    if (!is_ready(state)) {
        return MODEL_WAITING;
    }
    next_regressor(state, u, x);
    for (int i = 0; i < MODEL_N_TARGETS; i++) {
        part v = view(state, i);
        next[i] = predict_one(&v, x, output_before(state, &v));
    }
    return MODEL_OK;
}

void model_init(model_state *state)
{
    memset(state, 0, sizeof *state);
    state->version = MODEL_VERSION;
{initialisation}}

void model_reset(model_state *state)
{
    state->n_samples = 0;
    state->n_tainted = 0;
    memset(state->past, 0, sizeof state->past);
}

int model_predict(const model_state *state, const model_real regressor[],
                  model_prediction targets[])
{
    if (!are_finite(regressor, MODEL_N_FEATURES)) {
        return MODEL_NOT_FINITE;
    }
    for (int i = 0; i < MODEL_N_TARGETS; i++) {
        part v = view(state, i);
        targets[i] = predict_one(&v, regressor, R(0.0));
    }
    return MODEL_OK;
}

/* Take a sample, some of whose outputs are missing (is_measured NULL: none is). */
static int take(model_state *state, const real *y, const unsigned char *is_measured, const real *u,
                const real *u_next, model_prediction *next)
{
    real outputs[MODEL_N_OUTPUTS];
    real x[MODEL_N_FEATURES];
    int n_missing = 0;
    if (!are_finite(u, MODEL_N_INPUTS) || !are_finite(u_next, HAS_LAG_0 ? MODEL_N_INPUTS : 0)) {
        return MODEL_NOT_FINITE;
    }
    for (int i = 0; i < MODEL_N_OUTPUTS; i++) {
        int is_missing = is_measured != NULL && !is_measured[i];
        outputs[i] = is_missing ? R(0.0) : y[i];
        n_missing += is_missing;
    }
    if (!are_finite(outputs, MODEL_N_OUTPUTS)) {
        return MODEL_NOT_FINITE;
    }
    if (n_missing > 0) {
        int n_replaced = 0;
        if (!is_ready(state)) {
            return MODEL_NOT_READY;
        }
        next_regressor(state, u, x);
        for (int i = 0; i < MODEL_N_TARGETS; i++) {
            part v = view(state, i);
            if (!is_measured[v.output]) {
                real predicted = mean_of(&v, x) + output_before(state, &v);
                outputs[v.output] = clip(predicted, v.lowest, v.highest);
                n_replaced += 1;
            }
        }
        if (n_replaced < n_missing) {
            return MODEL_NO_MODEL;
        }
    }
    push(state, outputs, u);
    if (n_missing > 0) {
        state->n_tainted = MAX_OUTPUT_LAG;
    }
    return predict_next(state, u_next, next);
}

int model_step(model_state *state, const model_real y[]{u}{u_next}, model_prediction next[])
{
    return take(state, y, NULL, {u_argument}, {u_next_argument}, next);
}

int model_missing(model_state *state{u}{u_next}, model_prediction next[])
{
    static const unsigned char none[MODEL_N_OUTPUTS] = {0};
    return take(state, NULL, none, {u_argument}, {u_next_argument}, next);
}
{partial}{learning}{simulation}
void model_seal(model_state *state)
{
    state->version = MODEL_VERSION;
    state->checksum = checksum_of_state((const unsigned char *)state);
}

int model_restore(model_state *state, const void *bytes)
{
    uint32_t version;
    uint32_t checksum;
    memcpy(&version, bytes, sizeof version);
    memcpy(&checksum, (const unsigned char *)bytes + sizeof version, sizeof checksum);
    if (version != MODEL_VERSION || checksum != checksum_of_state(bytes)) {
        return MODEL_BAD_STATE;
    }
    memmove(state, bytes, sizeof *state);
    return MODEL_OK;
}
