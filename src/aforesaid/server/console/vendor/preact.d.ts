// Types of the used part of Preact.
export type Node = any;
export function h(type: any, props: any, ...children: any[]): Node;
export function render(node: Node, parent: Element): void;
export function createContext<T>(value: T): any;
export const Fragment: any;
export class Component {
  constructor(props?: any);
  props: any;
  state: any;
  setState(state: any): void;
  render(props: any, state: any): Node;
}
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useReducer<S, A>(reduce: (before: S, action: A) => S, initial: S): [S, (action: A) => void];
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useRef<T>(initial: T): { current: T };
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useCallback<T>(callback: T, inputs: unknown[]): T;
export function useContext<T>(context: any): T;
