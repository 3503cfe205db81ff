/** The title of the tab: what is looked at, of which node, and whether that one is ready. */

const said = { view: '', node: 'Kafka sidecar', ready: true };

/** @param {{view?: string, node?: string, ready?: boolean}} change what is another now */
export function retitle(change) {
  Object.assign(said, change);
  document.title = `${said.ready ? '' : '(!) '}${[said.view, said.node].filter(Boolean).join(' · ')}`;
}
