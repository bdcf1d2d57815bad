/** What one check has against one history. `code` is stable; the sentence is for people. */
export interface Finding<Code extends string> {
  code: Code;
  message: string;
}
