/** What the tests use of Node, so that they are checked without all of its types. */

declare module "node:test" {
  export function test(name: string, body: () => void | Promise<void>): void;
  export function beforeEach(body: () => void): void;
}

declare module "node:assert/strict" {
  type Thrown = RegExp | ((error: unknown) => boolean);
  interface Assert {
    ok(value: unknown, message?: string): asserts value;
    equal<T>(actual: unknown, expected: T, message?: string): asserts actual is T;
    deepEqual<T>(actual: unknown, expected: T, message?: string): asserts actual is T;
    match(actual: string, expected: RegExp): void;
    rejects(promise: Promise<unknown>, expected?: Thrown): Promise<void>;
  }
  const assert: Assert;
  export default assert;
}
