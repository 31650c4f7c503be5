// Components in plain JavaScript: htm parses the markup, Preact renders it. Text always becomes a text node.
import { h } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export {
  Component, Fragment, createContext, render,
  useCallback, useContext, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "../vendor/preact.js";
