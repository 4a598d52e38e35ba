// Two dice, each thrown with a fair coin (three throws, or more where they say nothing): is the sum at least 9?
dtmc
module dice
  s : [0..7] init 0; // where the tree of throws is; 7: both dice lie
  first : [0..6] init 0;
  second : [0..6] init 0;
  [] s=0 -> 0.5 : (s'=1) + 0.5 : (s'=2);
  [] s=1 -> 0.5 : (s'=3) + 0.5 : (s'=4);
  [] s=2 -> 0.5 : (s'=5) + 0.5 : (s'=6);
  [] s=3 & first=0 -> 0.5 : (s'=1) + 0.5 : (s'=0) & (first'=1);
  [] s=4 & first=0 -> 0.5 : (s'=0) & (first'=2) + 0.5 : (s'=0) & (first'=3);
  [] s=5 & first=0 -> 0.5 : (s'=0) & (first'=4) + 0.5 : (s'=0) & (first'=5);
  [] s=6 & first=0 -> 0.5 : (s'=2) + 0.5 : (s'=0) & (first'=6);
  [] s=3 & first>0 -> 0.5 : (s'=1) + 0.5 : (s'=7) & (second'=1);
  [] s=4 & first>0 -> 0.5 : (s'=7) & (second'=2) + 0.5 : (s'=7) & (second'=3);
  [] s=5 & first>0 -> 0.5 : (s'=7) & (second'=4) + 0.5 : (s'=7) & (second'=5);
  [] s=6 & first>0 -> 0.5 : (s'=2) + 0.5 : (s'=7) & (second'=6);
  [] s=7 -> true;
endmodule
label "goal" = s=7 & first+second>=9;
label "avoid" = s=7 & first+second<9;
