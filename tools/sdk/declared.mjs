// A plugin of typedoc that leaves out what a class inherits: it is described once, where it is declared.
import { Converter } from "typedoc";

export function load(app) {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const reflection of Object.values(project.reflections)) {
      if (reflection.inheritedFrom) {
        project.removeReflection(reflection);
      }
    }
  });
}
