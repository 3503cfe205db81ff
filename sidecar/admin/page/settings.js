/** The settings that the node runs with, and where each comes from. Secrets are masked by the node. */

import { tag } from './format.js';
import { Listed } from './paged.js';

const COLUMNS = [
  { title: 'Setting', by: (each) => each.setting, parts: (each) => [['span', { class: 'name' }, each.setting]] },
  { title: 'Value', parts: (each) => [each.value === '' ? ['span', { class: 'soft' }, 'empty'] : ['code', {}, each.value]] },
  { title: 'Comes from', by: (each) => each.origin, parts: (each) => [each.origin === 'default' ? ['span', { class: 'soft' }, 'default'] : tag('quiet', each.origin)] },
  { title: 'Change needs', by: (each) => String(each.reloadable), parts: (each) => [each.reloadable ? 'a reload (SIGHUP)' : 'a restart'] },
];

export class Settings extends Listed {
  constructor() {
    super({
      title: 'Settings',
      about: 'The effective values of this node.',
      every: 30_000,
      path: 'v1/settings',
      key: (each) => each.setting,
      columns: COLUMNS,
      none: 'The node shows no settings.',
    });
  }
}
