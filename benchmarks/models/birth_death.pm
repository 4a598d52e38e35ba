// A small population: births get rarer as it grows. Does it die out within 200 events?
dtmc
module population
  n : [0..40] init 10;
  [] n>0 & n<40 -> 0.55-0.004*n : (n'=n+1) + 0.45+0.004*n : (n'=n-1);
  [] n=40 -> (n'=39);
  [] n=0 -> true;
endmodule
label "goal" = n=0;
