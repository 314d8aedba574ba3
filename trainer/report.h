/* report.h -- report.html, the page of a run, made by rubato-report when the run is over. */
#ifndef TR_REPORT_H
#define TR_REPORT_H

/* Runs the rubato-report that lies beside this program, else the one in PATH, on the files of --out
 * in `folder`. No run fails for want of a page: what is wrong is one line on standard error. */
void tr_report_make(const char *folder);

#endif
