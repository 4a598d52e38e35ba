// Five honest members and one who listens, five messages: is the true sender (member 0) overheard at least twice?
dtmc
const double FORWARD = 0.8;
module crowd
  left : [0..5] init 5;
  stage : [0..3] init 0; // 0 between messages, 1 a member passes on, 2 a member decides, 3 the listener has it
  at : [0..4] init 0;
  heard : [0..2] init 0;
  [] stage=0 & left>0 & heard<2 -> (stage'=1) & (left'=left-1) & (at'=0);
  [] stage=1 -> 1/6 : (stage'=3) + 1/6 : (stage'=2) & (at'=0) + 1/6 : (stage'=2) & (at'=1)
    + 1/6 : (stage'=2) & (at'=2) + 1/6 : (stage'=2) & (at'=3) + 1/6 : (stage'=2) & (at'=4);
  [] stage=2 -> FORWARD : (stage'=1) + 1-FORWARD : (stage'=0) & (at'=0);
  [] stage=3 -> (stage'=0) & (at'=0) & (heard'=at=0 ? heard+1 : heard);
  [] stage=0 & (left=0 | heard=2) -> true;
endmodule
label "goal" = stage=0 & heard=2;
label "avoid" = stage=0 & left=0 & heard<2;
