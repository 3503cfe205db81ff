/** The policy of a prefix: what it decides, and which topics it covers now. */

import { get, path } from './api.js';
import { build, fill } from './dom.js';
import { Pager } from './paged.js';
import { nearestFirst, policyWords } from './policy.js';
import { table } from './table.js';
import { askToForgetPolicy, askToSetPolicy, coveredBy } from './topic_acts.js';
import { POLICIES, block, button } from './topic_parts.js';
import { COLUMNS } from './topics.js';
import { Named } from './view.js';

const PAGE = 50;

export class Prefix extends Named {
  constructor() {
    super({ title: 'Prefix', section: 'topics', about: 'All topics whose names begin with it, also later ones. A topic’s own policy and a longer prefix override it; a shadow has the policy of its source.', every: 5_000 });
    /** @type {any} */
    this.prefix = null;
    this.facts = /** @type {HTMLElement} */ (build(['div', {}]));
    this.covered = table('Topics that it covers', (each) => each.topic, COLUMNS);
    this.pager = new Pager('topics that it covers', () => this.poll.renew());
    this.wider = block('Policies that apply to it, the nearest first', (each) => each.name, POLICIES);
    this.content.append(this.facts, this.wider.element, build(['h3', {}, 'Topics that it covers']), ...this.covered.parts, this.pager.element);
    this.element.addEventListener('click', (event) => {
      const act = event.target instanceof HTMLElement && event.target.dataset.act;
      const done = () => this.poll.now();
      if (!this.prefix) return;
      if (act === 'policy') askToSetPolicy(this.name, this.prefix.policy, done);
      else if (act === 'forget-policy') askToForgetPolicy(this.name, this.prefix.policy, done);
    });
  }

  forget() {
    this.prefix = null;
    this.pager.restart();
  }

  async load() {
    const prefix = await get(`v1/topics/${path(this.name)}`);
    const token = this.pager.token && `&page_token=${path(this.pager.token)}`;
    return { prefix, covered: await get(`${coveredBy(this.name, PAGE)}${token}`) };
  }

  /** @param {{prefix: any, covered: {items: any[], next_page_token: string | null}}} found */
  show({ prefix, covered }) {
    super.show(prefix);
    this.prefix = prefix;
    fill(this.buttons, button('policy', 'Set policy…'), button('forget-policy', 'Forget policy…', 'danger'));
    fill(this.facts, ['p', {}, policyWords(prefix.policy)]);
    const policies = nearestFirst(prefix.policies ?? {});
    this.wider.show(policies.length > 1 ? policies.map(([name, policy]) => ({ name, policy })) : [], '');
    const items = covered.items.filter((each) => each.policy && each.topic !== this.name); // what has none is a shadow
    if (this.pager.shows(covered.items.length, covered.next_page_token)) this.covered.show(items, 'It covers no topic yet.');
  }
}
