// Four jobs on two machines, two of them at a time; each is done after a slot with a chance of its own. Are all of them
// done within twelve slots, if they are chosen badly?
mdp
formula done = b1+b2+b3+b4=4;
module jobs
  t : [0..12] init 0;
  b1 : [0..1] init 0;
  b2 : [0..1] init 0;
  b3 : [0..1] init 0;
  b4 : [0..1] init 0;
  [run12] t<12 & !done & b1+b2=0 -> 0.06 : (b1'=1) & (b2'=1) & (t'=t+1) + 0.14 : (b1'=1) & (t'=t+1)
    + 0.24 : (b2'=1) & (t'=t+1) + 0.56 : (t'=t+1);
  [run13] t<12 & !done & b1+b3=0 -> 0.1 : (b1'=1) & (b3'=1) & (t'=t+1) + 0.1 : (b1'=1) & (t'=t+1)
    + 0.4 : (b3'=1) & (t'=t+1) + 0.4 : (t'=t+1);
  [run14] t<12 & !done & b1+b4=0 -> 0.12 : (b1'=1) & (b4'=1) & (t'=t+1) + 0.08 : (b1'=1) & (t'=t+1)
    + 0.48 : (b4'=1) & (t'=t+1) + 0.32 : (t'=t+1);
  [run23] t<12 & !done & b2+b3=0 -> 0.15 : (b2'=1) & (b3'=1) & (t'=t+1) + 0.15 : (b2'=1) & (t'=t+1)
    + 0.35 : (b3'=1) & (t'=t+1) + 0.35 : (t'=t+1);
  [run24] t<12 & !done & b2+b4=0 -> 0.18 : (b2'=1) & (b4'=1) & (t'=t+1) + 0.12 : (b2'=1) & (t'=t+1)
    + 0.42 : (b4'=1) & (t'=t+1) + 0.28 : (t'=t+1);
  [run34] t<12 & !done & b3+b4=0 -> 0.3 : (b3'=1) & (b4'=1) & (t'=t+1) + 0.2 : (b3'=1) & (t'=t+1)
    + 0.3 : (b4'=1) & (t'=t+1) + 0.2 : (t'=t+1);
  [run1] t<12 & !done & b1=0 & b2+b3+b4=3 -> 0.2 : (b1'=1) & (t'=t+1) + 0.8 : (t'=t+1);
  [run2] t<12 & !done & b2=0 & b1+b3+b4=3 -> 0.3 : (b2'=1) & (t'=t+1) + 0.7 : (t'=t+1);
  [run3] t<12 & !done & b3=0 & b1+b2+b4=3 -> 0.5 : (b3'=1) & (t'=t+1) + 0.5 : (t'=t+1);
  [run4] t<12 & !done & b4=0 & b1+b2+b3=3 -> 0.6 : (b4'=1) & (t'=t+1) + 0.4 : (t'=t+1);
  [over] t=12 | done -> true;
endmodule
label "goal" = done;
label "avoid" = t=12 & !done;
