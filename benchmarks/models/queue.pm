// A queue with room for 15, seen when something arrives or leaves: how many of 60 events turn a customer away?
dtmc
const double ARRIVES = 0.5;
module queue
  n : [0..15] init 8;
  away : bool init false;
  [] n=0 -> (n'=1) & (away'=false);
  [] n>0 & n<15 -> ARRIVES : (n'=n+1) & (away'=false) + 1-ARRIVES : (n'=n-1) & (away'=false);
  [] n=15 -> ARRIVES : (away'=true) + 1-ARRIVES : (n'=14) & (away'=false);
endmodule
rewards "away"
  away : 1;
endrewards
