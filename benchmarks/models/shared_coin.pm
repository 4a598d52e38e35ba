// Two processes make a common coin: they flip, move a counter, and stop where it is far out. A scheduler orders them.
mdp
const int FAR = 10;
const int NEAR = 2;
global counter : [0..12] init 6;
module first
  at1 : [0..3] init 0; // 0 flips, 1 moves the counter, 2 looks, 3 is done
  coin1 : [0..1] init 0;
  [] at1=0 -> 0.5 : (at1'=1) & (coin1'=0) + 0.5 : (at1'=1) & (coin1'=1);
  [] at1=1 & coin1=0 & counter>0 -> (at1'=2) & (counter'=counter-1);
  [] at1=1 & coin1=1 & counter<12 -> (at1'=2) & (counter'=counter+1) & (coin1'=0);
  [] at1=2 & counter<=NEAR -> (at1'=3) & (coin1'=0);
  [] at1=2 & counter>=FAR -> (at1'=3) & (coin1'=1);
  [] at1=2 & counter>NEAR & counter<FAR -> (at1'=0);
endmodule
module second = first [at1=at2, coin1=coin2] endmodule
module rest
  [] at1=3 & at2=3 -> true;
endmodule
label "goal" = at1=3 & at2=3 & coin1!=coin2;
label "avoid" = at1=3 & at2=3 & coin1=coin2;
