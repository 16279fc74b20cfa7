// Azurite searches all blobs for each request, on its only thread. Lists of more than one page of
// 5,000 blobs therefore keep it busy for minutes. Node.js loads this file before Azurite
// (`--require`); it shortens the pages.
'use strict';

const path = require('path');

const program = path.dirname(process.argv[1]);
const constants = require(path.join(program, 'utils', 'constants'));
if (!(constants.DEFAULT_LIST_BLOBS_MAX_RESULTS > 0)) {
  throw new Error(`${program} names its page size differently; correct azurite_pages.js`);
}
constants.DEFAULT_LIST_BLOBS_MAX_RESULTS = 100;
