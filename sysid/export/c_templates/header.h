/* {title}
 *
{description}
 *
 * cc {name}.c -DSYSID_TEST -lm && ./a.out   checks the file against the model.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef {precision} model_real;

#define MODEL_VERSION {version}u /* of this model: a stored state of another one is refused */
#define MODEL_SAMPLING_TIME {sampling_time} /* s; 0: not known */

enum {
    MODEL_N_OUTPUTS = {n_outputs},
    MODEL_N_INPUTS = {n_inputs},
    MODEL_N_TARGETS = {n_targets},   /* outputs that are predicted */
    MODEL_N_FEATURES = {n_features}, /* of a regressor */
    MODEL_N_LAGS = {n_lags},         /* samples that must be known before the first prediction */
    MODEL_LEARNS = {learns}          /* whether it goes on learning */
};

/* Positions in arrays of outputs, of inputs, and of predictions. */
enum {
{positions}
};

/* What the functions return. A negative code means that nothing has changed. */
enum {
    MODEL_OK = 0,
    MODEL_WAITING = 1,     /* the sample is stored; its lags are not full yet: no prediction */
    MODEL_NOT_FINITE = -1, /* a value is not a number, infinite, or beyond {max_magnitude} */
    MODEL_NOT_READY = -2,  /* the lags are not full yet */
    MODEL_BAD_SIZE = -3,   /* a number of samples is impossible */
    MODEL_BAD_STATE = -4,  /* a stored state is damaged, or belongs to another model */
    MODEL_NO_MODEL = -5,   /* an output that no model predicts is missing, or needed */
    MODEL_TOO_FAR = -6,    /* the arithmetic cannot learn a sample so far from all others */
    MODEL_DIVERGED = -7    /* a simulation has left all bounds; its outputs are not usable */
};

/* Prediction of a target or of an output. */
typedef struct {
    model_real mean;
    model_real std;      /* of a measurement, as wide as the errors of held-out samples were */
    model_real low;      /* ends of the 95 % band of a measurement */
    model_real high;
    model_real variance; /* of the function alone, without noise and without calibration */
} model_prediction;

/* What became of a sample: prediction, and decisions of the dictionary. */
typedef struct {
    model_real mean;     /* of the target, before it was learned */
    model_real variance; /* of the function */
    model_real acceptance_score;   /* 0 if it was not needed; so are the other scores */
    model_real acceptance_minimum;
    model_real reduction_score;
    int learned;  /* 0: it was an outlier, or one of its lags was missing */
    int outlier;  /* beyond the gate */
    int inserted; /* the insertion rule proposed to store it */
    int accepted; /* it was stored */
    int slot;     /* where; -1: nowhere */
    int removed;  /* slot whose point it replaced; -1: none */
    int n_points; /* points after the sample */
} model_report;

typedef struct {
{numbers}
} model_numbers;

{structs}
/* Everything that changes: the last samples, and what has been learned. Copy it byte by byte to
 * store it, after model_seal. {n_state_bytes} bytes.
 */
typedef struct {
    uint32_t version;
    uint32_t checksum;   /* valid after model_seal */
    uint32_t n_samples;  /* of this run, at most MODEL_N_LAGS */
    uint32_t n_tainted;  /* coming samples that have a predicted output among their lags */
    model_real past[{n_past}]; /* the last samples, the newest first: outputs, then inputs */
{members}} model_state;

/* Begin with the model as it was exported, before the first sample. */
void model_init(model_state *state);

/* Begin a new run: the next sample does not follow the last one. What was learned stays. */
void model_reset(model_state *state);

/* Predict the targets of a regressor, whose features are
{features}
 * A target is {target}.
 */
int model_predict(const model_state *state, const model_real regressor[],
                  model_prediction targets[]);

/* Store the sample of now, and predict the outputs of the next one, in their own units.
 *
 * y are the measured outputs{of_inputs}.
 */
int model_step(model_state *state, const model_real y[]{u}{u_next}, model_prediction next[]);

/* As model_step for a sample whose outputs are missing. The predictions, within the limits of the
 * outputs, take their place among the lags; bands are those of one step nevertheless. If an input
 * is missing, call model_reset.
 */
int model_missing(model_state *state{u}{u_next}, model_prediction next[]);
{partial}{learning}{simulation}{addition}
/* Write version and checksum into the state, before it is copied to where it is kept. */
void model_seal(model_state *state);

/* Continue from the bytes of a sealed state of the same model. */
int model_restore(model_state *state, const void *bytes);

#ifdef __cplusplus
}
#endif
#endif
