/** What several views ask of the model, and sentences that they have in common. */

/** Whether the page shows the present of a run that goes on, so that questions about now make sense. */
export function isPresent(model) {
  return model.live && model.isNow;
}

/** Why there is less to see than in a run that goes on; an empty text if there is not. */
export function whyLess(model, what) {
  if (isPresent(model)) return "";
  return model.live ? `This is an earlier moment: ${what}.` : `The run is over: ${what}.`;
}

/** The events until the moment that is shown, of some kinds, oldest first. */
export function eventsOf(model, ...kinds) {
  return model.events.filter((each) => kinds.includes(each.kind) && (model.isNow || each.at <= model.at));
}

/** The operators of a run but those of some kinds, in their order. */
export function operatorsBut(model, ...kinds) {
  const { operators = {} } = model.run ?? {};
  return Object.keys(operators).filter((name) => !kinds.includes(operators[name]));
}
