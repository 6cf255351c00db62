/* Marks the few symbols that a library shows; everything else is hidden (-fvisibility=hidden). */
#ifndef FORENSICS_EXPORT_H
#define FORENSICS_EXPORT_H

#define FORENSICS_EXPORT __attribute__((visibility("default")))

#endif
