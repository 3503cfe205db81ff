/**
 * Server-sent events with the token in a header, which `EventSource` cannot send. One connection: the caller opens the
 * next one.
 */

import { token } from './api.js';

const LINE = /\r\n|\n|\r/;

/**
 * Read events until the stream ends or `signal` ends it.
 *
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {() => void} opened
 * @param {(event: {kind: string, id: string, data: string}) => void} take
 * @returns {Promise<string | null>} why the node refuses the stream; null where it ended, or nobody answered
 */
export async function read(path, signal, opened, take) {
  const headers = new Headers({ Accept: 'text/event-stream' });
  if (token.get()) headers.set('Authorization', `Bearer ${token.get()}`);
  const answer = await fetch(path, { headers, signal, cache: 'no-store', credentials: 'same-origin' });
  if (!answer.ok || !answer.body) return (await messageOf(answer)) ?? `${answer.status} ${answer.statusText}`;
  opened();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  /** @type {Record<string, string>} */
  let fields = {};
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return null;
    const lines = (rest + value).split(LINE);
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line) {
        const colon = line.indexOf(':');
        if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, '');
      } else {
        if ('data' in fields) take({ kind: fields.event ?? 'message', id: fields.id ?? '', data: fields.data });
        fields = {};
      }
    }
  }
}

/** @param {Response} answer */
async function messageOf(answer) {
  try {
    return (await answer.json()).message ?? null;
  } catch {
    return null;
  }
}
