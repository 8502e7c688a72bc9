// Prints the public suite's tests as JSON, one after the other, for `suite.rs`.
import { pathToFileURL } from 'node:url'
const suites = (await import(pathToFileURL(process.argv[2] + '/tests/index.mjs'))).default
const tests = suites.flatMap(suite => suite.tests.map(test => ({ suite: suite.id, ...test })))
console.log(JSON.stringify(tests.filter(test => !test.browser_only)))
